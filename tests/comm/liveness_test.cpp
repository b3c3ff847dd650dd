// Who is blamed, on a clock that the test turns. Timeout 10 s, judged at 85 % of it: 8.5 s.
#include "linerate/comm/liveness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
    goes_in(rank, name, members, compares);
  }
  /// It has submitted it.
  void goes_in(int rank, const std::string& name, const std::vector<int>& members = kAll,
               bool compares = false) {
    Fingerprint& print = prints_.emplace_back();
    print.set_name(name);
    print.sequence = (*this)[rank].begun(rank);
    print.count = name == "longer" ? 5 : 4;
    if (members != kAll) print.set_group(members.size(), "group");
    (*this)[rank].begin({members, &print, compares}, kStart);
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
  std::deque<Fingerprint> prints_;
};

const std::vector<int> kElsewhere = {1, 2, 3};

struct VerdictCase {
  const char* name;
  std::function<void(Job&)> then;  // after rank 0 began "x"; it hears all afterwards
  milliseconds after;
  std::vector<std::string> says;          // none: no verdict
  std::vector<int> members = kAll;        // of "x"
  std::function<void(Job&)> before = {};  // rank 0 began it
  std::vector<std::string> not_said = {};
};
void PrintTo(const VerdictCase& c, std::ostream* out) { *out << c.name; }

void nothing(Job&) {}
void all_are_here(Job& job) {
  for (int r = 1; r < kRanks; ++r) job.begins(r, "x");
}
std::function<void(Job&)> here_but(int absent, const std::function<void(Job&)>& else_ = nothing) {
  return [=](Job& job) {
    for (int r = 1; r < kRanks; ++r) {
      if (r != absent) job.begins(r, "x");
    }
    else_(job);
  };
}
void comes_to_group(Job& job) { job.begins(2, "x", kGroup); }
void waits_elsewhere(Job& job) { job.begins(2, "y", kElsewhere); }
std::function<void(Job&)> passes_another_and(int more) {
  return [=](Job& job) {
    job.passes(2, "longer");
    for (int k = 0; k < more; ++k) job.passes(2, "x");
  };
}
std::function<void(Job&)> leaves(int rank) {
  return [=](Job& job) { job[rank].set_state(Beat::State::left); };
}
std::function<void(Job&)> is_busy(int rank, std::optional<Clock::duration> left = {}) {
  return [=](Job& job) {
    BusyNote note{"writing a checkpoint"};
    if (left) note.until = kStart + *left;
    job[rank].set_busy(note);
  };
}

class Verdict : public ::testing::TestWithParam<VerdictCase> {};

TEST_P(Verdict, IsTheExpectedOneInEachSituation) {
  const VerdictCase& c = GetParam();
  Job job;
  if (c.before) c.before(job);
  job.begins(0, "x", c.members);
  c.then(job);
  job.hears_all(kStart + c.after);
  const std::string said = job.verdict(kStart + c.after);
  EXPECT_EQ(said.empty(), c.says.empty()) << said;
  for (const std::string& text : c.says) EXPECT_THAT(said, HasSubstr(text));
  for (const std::string& text : c.not_said) EXPECT_THAT(said, Not(HasSubstr(text)));
}

const milliseconds kSoon{1}, kLimit{8500}, kPast{8501}, kTwice{17'000}, kPastTwice{17'001};

const std::vector<VerdictCase> kVerdicts = {
    {"NobodyIsBlamedBeforeTheLimit", nothing, kLimit, {}},
    {"WhoHasNotComeIsLate",
     here_but(2),
     kPast,
     {"rank 2 is late: alive, but has not begun this operation after 8.50 s (timeout 10.0 s)"}},
    {"AllWhoHaveNotComeAreLate",
     [](Job& job) { job.begins(2, "x"); },
     kPast,
     {"ranks 1, 3 are late"}},
    {"ARankThatLeftFailsTheCollectiveAtOnce",
     here_but(2, leaves(2)),
     kSoon,
     {"rank 2 left the job"}},
    {"ARankThatLeftBeforeItBeganIsNamedAtOnce",
     here_but(1, [](Job& job) { job.submits(1), leaves(1)(job); }),
     kSoon,
     {"rank 1 left the job"}},
    {"ARankMayLeaveAfterItsPart",
     [](Job& job) { all_are_here(job), job[2].end(), leaves(2)(job); },
     kSoon,
     {}},
    {"WithoutACulpritItSaysSo",
     all_are_here,
     kPast,
     {"no message arrived for 8.50 s", "every rank takes part"}},
    // Ranks outside of the group may have left, or compute for as long as they like.
    {"ARankOutsideIsNeverLateAndMayLeave",
     comes_to_group,
     kPast,
     {"every rank takes part"},
     kGroup,
     leaves(1)},
    {"AMemberThatDoesNotComeIsLate", nothing, kPast, {"rank 2 is late"}, kGroup},
    {"AMemberThatLeftIsNamed", leaves(2), kSoon, {"rank 2 left the job"}, kGroup},
    // The counts are by pairs: what rank 0 has begun with others says nothing of rank 2.
    {"ComparesTheCountsOfEachPair",
     comes_to_group,
     kPast,
     {"every rank takes part"},
     kGroup,
     [](Job& job) {
       for (int k = 0; k < 100; ++k) job.passes(0, "y", {0, 1}), job.passes(1, "y", {0, 1});
     }},
    // Rank 2 waits in another group, for somebody whom it names itself.
    {"WhoWaitsElsewhereHasTwiceTheLimit", waits_elsewhere, kTwice, {}, kGroup},
    {"WhoHasSubmittedHasTwiceTheLimit",
     [](Job& job) { job.submits(2, kGroup); },
     kTwice,
     {},
     kGroup},
    // Ranks wait in a circle, or rank 2 goes on with other groups for ever.
    {"WhoWaitsElsewhereIsLateAfterAll",
     waits_elsewhere,
     kPastTwice,
     {"rank 2 is late", "rank 2 is inside barrier \"y\" (number 7) in group \"group\"",
      "different orders"},
     kGroup},
    {"WhoIsNotExcusedIsNamedAlone",
     [](Job& job) { job.begins(1, "x"), waits_elsewhere(job); },
     kPast,
     {"rank 3 is late"},
     kAll,
     {},
     {"rank 2"}},
    // Collectives that two ranks share are compared by a hash, at once and in every pair.
    {"OtherOperationsAreNamedAtOnce",
     here_but(2, [](Job& job) { job.begins(2, "longer"); }),
     kSoon,
     {"rank 0 and rank 2 began different ones", "barrier \"x\"", "barrier \"longer\"",
      "the ranks run different operations here"}},
    {"OtherOperationsOfThePastAreNamed",
     here_but(2, passes_another_and(3)),
     kSoon,
     {"rank 0 and rank 2 began different ones"}},
    {"OnlyTheLastFourAreRemembered", here_but(2, passes_another_and(4)), kSoon, {}},
    {"WhoComparesMeetsWhoDoesNot",
     here_but(2, [](Job& job) { job.begins(2, "x", kAll, true); }),
     kSoon,
     {"rank 0 and rank 2 began different ones"}},
    {"ABusyRankIsNotLate", here_but(2), kPastTwice, {}, kAll, is_busy(2)},
    // It may hold up a member.
    {"WhileARankIsBusyElsewhereNobodyIsLate", nothing, kPastTwice, {}, kGroup, is_busy(1)},
    {"ABusyRankThatIsHereExcusesNobody", here_but(2), kPast, {"rank 2 is late"}, kAll, is_busy(1)},
    {"ABusyRankThatLeftExcusesNobody",
     nothing,
     kPast,
     {"rank 2 is late"},
     kGroup,
     [](Job& job) { is_busy(1)(job), leaves(1)(job); }},
    {"TheBoundOfABusyRankEndsItsExcuse",
     here_but(2),
     kPast,
     {"rank 2 is late", "rank 2 is busy for longer than it asked for: writing a checkpoint"},
     kAll,
     is_busy(2, seconds(3))}};

INSTANTIATE_TEST_SUITE_P(Liveness, Verdict, ::testing::ValuesIn(kVerdicts),
                         [](const auto& one) { return std::string(one.param.name); });

/// A silent rank makes others late: it is the one to name, a member or not, busy or not.
TEST(Liveness, ASilentRankIsNamedBeforeALateOne) {
  for (const auto& act : {std::function<void(Job&)>(nothing), is_busy(1)})
    for (const auto& members : {kAll, kGroup}) {
      Job job;
      act(job);
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
  all_are_here(job);
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
  here_but(2, is_busy(2))(job);
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
    all_are_here(job);
    EXPECT_EQ(agree(), "");
  }
}

/// It says nothing of a rank that waits for nobody.
TEST(Liveness, OutsideOfCollectivesThereIsNoVerdict) {
  Job job;
  leaves(2)(job);
  job.hears_all(kStart + kPastTwice);
  EXPECT_EQ(job.verdict(kStart + kPastTwice), "");
  EXPECT_FALSE(job[0].stuck(kStart));
}

}  // namespace
}  // namespace linerate::comm
