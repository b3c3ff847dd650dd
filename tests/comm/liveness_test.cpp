// Who is blamed, on a clock that the test turns. Timeout 10 s, judged at 85 % of it: 8.5 s.
#include "linerate/comm/liveness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <sstream>
#include <string>
#include <vector>

#include "support/case_files.hpp"

namespace linerate::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Clock::time_point kStart{seconds(1000)};
constexpr int kRanks = 4;
const std::vector<int> kAll = {0, 1, 2, 3}, kGroup = {0, 2};

/// Four ranks, each with its own signs of life. All have been through seven collectives of all;
/// then rank 0 begins the eighth and waits in it from kStart on.
class Job {
 public:
  Job() {
    for (int r = 0; r < kRanks; ++r) lives_.emplace_back(r, kRanks, seconds(10), kStart);
    for (int k = 0; k < 7; ++k)
      for (int r = 0; r < kRanks; ++r) passes(r, "earlier");
  }

  Liveness& operator[](int rank) { return lives_[static_cast<std::size_t>(rank)]; }
  void submits(int rank, const std::vector<int>& members = kAll) {
    (*this)[rank].submitted(members);
  }
  void begins(int rank, const std::string& name, const std::vector<int>& members = kAll,
              bool compares = false) {
    submits(rank, members);
    Fingerprint& print = prints_.emplace_back();
    print.set_name(name);
    print.sequence = (*this)[rank].begun(rank);
    print.count = name == "longer" ? 5 : 4;
    if (members != kAll) print.set_group(members.size(), "group");
    (*this)[rank].begin({members_.emplace_back(members), &print, compares}, kStart);
  }
  void passes(int rank, const std::string& name, const std::vector<int>& members = kAll) {
    begins(rank, name, members);
    (*this)[rank].end();
  }
  /// Rank 0 hears what it says.
  void hears(int rank, Clock::time_point now) {
    SharedWork shared;
    const Beat beat = (*this)[rank].say(now, 0, {&shared, 1});
    (*this)[0].heard(rank, beat, shared, now);
  }
  void hears_all(Clock::time_point now) {
    for (int r = 1; r < kRanks; ++r) hears(r, now);
  }
  std::string verdict(Clock::time_point now) { return (*this)[0].judge(now).value_or(""); }

 private:
  std::deque<Liveness> lives_;
  std::deque<Fingerprint> prints_;        // what ranks are inside of looks at them
  std::deque<std::vector<int>> members_;  // and at these
};

/// A line of a case. "RANK begins NAME [RANKS]", or compares or submits it, or "passes NAME RANKS
/// TIMES"; RANKS are "0,2", or all. "RANK ends", "RANK leaves", "RANK is busy [SECONDS]".
void play(Job& job, const std::string& line) {
  std::istringstream words(line);
  std::string verb, name, ranks = "all";
  int rank = 0, times = 1;
  words >> rank >> verb >> name >> ranks >> times;
  std::vector<int> members;
  for (const char c : ranks)
    if (c >= '0' && c <= '9') members.push_back(c - '0');
  if (members.empty()) members = kAll;
  if (verb == "begins" || verb == "compares") job.begins(rank, name, members, verb == "compares");
  if (verb == "submits") job.submits(rank, members);
  for (int k = 0; verb == "passes" && k < times; ++k) job.passes(rank, name, members);
  if (verb == "ends") job[rank].end();
  if (verb == "leaves") job[rank].set_state(Beat::State::left);
  if (verb != "is") return;
  BusyNote note{"writing a checkpoint"};
  if (ranks != "all") note.until = kStart + seconds(std::stoi(ranks));
  job[rank].set_busy(note);
}

void play_all(Job& job, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) play(job, line);
}
constexpr const char* kOthersAreHere = "1 begins x\n2 begins x\n3 begins x";

class Verdict : public ::testing::TestWithParam<FileCase> {};

// "after MS" has what the verdict says then, "not" what it does not; nothing: there is none.
TEST_P(Verdict, IsTheExpectedOneInEachSituation) {
  Job job;
  std::string said;
  for (const auto& [title, text] : GetParam().parts) {
    if (title == "job") play_all(job, text);
    if (title.starts_with("after ")) {
      const auto now = kStart + milliseconds(std::stoi(title.substr(6)));
      job.hears_all(now);
      said = job.verdict(now);
      EXPECT_EQ(said.empty(), text.empty()) << said;
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (title == "not") {
        EXPECT_THAT(said, Not(HasSubstr(line)));
      } else if (title.starts_with("after ")) {
        EXPECT_THAT(said, HasSubstr(line));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Liveness, Verdict, ::testing::ValuesIn(cases_in(COMM_CASES)),
                         [](const auto& one) { return one.param.name; });

const milliseconds kLimit{8500}, kPast{8501}, kPastTwice{17'001};

/// A silent rank makes others late: it is the one to name, a member or not, busy or not.
TEST(Liveness, ASilentRankIsNamedBeforeALateOne) {
  for (const char* before : {"", "1 is busy"})
    for (const auto& members : {kAll, kGroup}) {
      Job job;
      play_all(job, before);
      job.begins(0, "x", members);
      job.hears_all(kStart + seconds(8));
      job.hears(1, kStart - seconds(1));
      const std::string said = job.verdict(kStart + kPast);
      EXPECT_THAT(said, HasSubstr("rank 1 gave no sign of life for 9.50 s (timeout 10.0 s)"));
      EXPECT_THAT(said, Not(HasSubstr("rank 2")));
    }
}

/// This process was stopped itself for a minute: the others have as long again as they had.
TEST(Liveness, AStoppedProcessGivesTheOthersAsMuchTimeAgain) {
  Job job;
  job.begins(0, "x");
  play_all(job, kOthersAreHere);
  for (int s = 0; s <= 1; ++s) job[0].awake(kStart + seconds(s));
  job.hears_all(kStart + seconds(1));
  job[0].awake(kStart + seconds(61));
  EXPECT_EQ(job.verdict(kStart + seconds(65)), "");
  EXPECT_THAT(job.verdict(kStart + seconds(75)), HasSubstr("ranks 1, 2, 3 gave no sign of life"));
}

/// After an hour of it the time begins anew, not where it was.
TEST(Liveness, TheTimeoutBeginsAnewAfterABusyRank) {
  Job job;
  job.begins(0, "x");
  play_all(job, "1 begins x\n3 begins x\n2 is busy");
  const auto later = kStart + seconds(3600);
  job.hears_all(later);
  EXPECT_EQ(job.verdict(later), "");
  job[2].set_busy({});
  job.hears_all(later + kLimit);
  EXPECT_EQ(job.verdict(later + kLimit), "");
  EXPECT_THAT(job.verdict(later + kPast), HasSubstr("rank 2 is late"));
}

/// The two sides of a comparison end it at different moments. A refused collective leaves no count
/// behind.
TEST(Liveness, RanksMayBeInDifferentPartsOfAComparison) {
  for (const bool alike : {true, false}) {
    Job job;
    for (int r = 0; r < kRanks; ++r) job.begins(r, "x", kAll, true);
    const auto agree = [&] {
      job.hears_all(kStart);
      return job.verdict(kStart);
    };
    EXPECT_EQ(agree(), "");
    job[0].compared(alike);
    EXPECT_EQ(agree(), "");
    for (int r = 1; r < kRanks; ++r) job[r].compared(alike);
    EXPECT_EQ(agree(), "");
    EXPECT_EQ(job[0].history(1) == Job()[0].history(1), !alike);
    job.begins(0, "y");
    play_all(job, kOthersAreHere);
    EXPECT_EQ(agree(), "");
  }
}

/// It says nothing of a rank that waits for nobody.
TEST(Liveness, OutsideOfCollectivesThereIsNoVerdict) {
  Job job;
  play(job, "2 leaves");
  job.hears_all(kStart + kPastTwice);
  EXPECT_EQ(job.verdict(kStart + kPastTwice), "");
  EXPECT_FALSE(job[0].stuck(kStart));
}

}  // namespace
}  // namespace linerate::comm
