// Logs as nccl-tests prints them, with launchers' labels, other output between the lines, rows cut
// off and several runs in one file: the rows come back, or a refusal, never other rows.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "bench_logs/printed_log.hpp"
#include "bench_logs/read_log.hpp"
#include "linerate/core/random.hpp"

namespace linerate::bench_logs {

bool operator==(const CollectiveSample& a, const CollectiveSample& b) {
  return a.collective == b.collective && a.ranks == b.ranks && a.in_place == b.in_place &&
         a.bytes == b.bytes && std::abs(a.seconds - b.seconds) < 1e-9 * b.seconds;
}
void PrintTo(const CollectiveSample& s, std::ostream* out) {
  *out << name_of(s.collective) << " on " << s.ranks << (s.in_place ? " in place " : " ") << s.bytes
       << " B " << s.seconds << " s";
}

namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;

/// What may be read of a log whose rank lines are lost: the same rows, or no rank count.
void expect_same_or_unknown_ranks(const CollectiveLog& log,
                                  const std::vector<CollectiveSample>& rows,
                                  const std::string& text) {
  for (CollectiveSample sample : log.rows) {
    const bool known = sample.ranks != 0;
    bool found = false;
    for (CollectiveSample row : rows) {
      if (!known) row.ranks = 0;
      found = found || sample == row;
    }
    ASSERT_TRUE(found) << testing::PrintToString(sample) << " is not in\n" << text;
  }
}

/// A log with its rows alone.
void expect_read(const PrintedLog& log, const std::string& before = "") {
  EXPECT_EQ(read(before + log.text()).rows, log.rows) << before.substr(0, 200);
}

const char* const kLabels[] = {
    "0: ",
    " 12: ",
    "[1,0]<stdout>:",
    "[0] ",
    "(head, rank=0, pid=2211) [1,0]<stdout>:",
    "(worker1, rank=1, pid=77, ip=10.0.0.2) ",
    "2024-03-01T12:00:00.123456Z ",
    "Fri Mar 18 11:22:33 2024[1,0]<stdout>:",
    "node17: ",
    "[pod/nccl-test-launcher-x7/nccl-test] ",
    "launcher-1  | ",
    "2026-04-19 03:18:27,123 - INFO - ",
    "2026-04-19T03:18:27.1Z stdout F ",
    "    ",
    "> ",
};

class EachTest : public testing::TestWithParam<PrintedTest> {};

TEST_P(EachTest, ComesBackFromEveryEraOnAnyNumberOfRanks) {
  for (const Era era : {Era::y2019, Era::y2021, Era::y2022, Era::y2025})
    for (const int ranks : {2, 3, 4, 8, 16, 72, 128, 512, 937, 2160}) {
      const PrintedLog log = printed_log({.test = GetParam(), .ranks = ranks, .era = era});
      // All-gather and all-to-all are told apart by the checks in place; before 2022 those two
      // print the same, and the command line says which.
      const bool is_said = GetParam().splits && !GetParam().reduces && era != Era::y2025;
      const std::string command = fmt::format("$ ./build/{}_perf -b 4K -e 4G\n", GetParam().name);
      expect_read(log, is_said ? command : "");
    }
}

TEST_P(EachTest, IsKnownByItsRowsAloneWhereTheyAreItsOwn) {
  for (const int ranks : {2, 3, 8, 16, 512, 2160})
    expect_read(printed_log({.test = GetParam(), .ranks = ranks}));
}

TEST_P(EachTest, WithoutRankLinesTheRanksAreRightOrUnknown) {
  for (const int ranks : {2, 3, 4, 8, 15, 16, 17, 128, 937, 2160})
    for (const double rate : {0.5e9, 5e9, 200e9}) {
      const PrintedLog log = printed_log({.test = GetParam(),
                                          .ranks = ranks,
                                          .era = Era::y2025,
                                          .lists_ranks = false,
                                          .bytes_per_s = rate});
      expect_same_or_unknown_ranks(read(log.text()), log.rows, log.text());
    }
}

INSTANTIATE_TEST_SUITE_P(NcclTests, EachTest, testing::ValuesIn(kPrintedTests),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(NcclTestsLog, LabelsOfLaunchersAreTakenOff) {
  const PrintedLog log = printed_log({.ranks = 16});
  for (const char* label : kLabels) EXPECT_EQ(read(log.text(label)).rows, log.rows) << label;
}

TEST(NcclTestsLog, SeveralTestsOfVersion217AreReadAsSeveralByTheirConclusionsAlone) {
  PrintedLog all;
  for (const PrintedTest& test : kPrintedTests)
    all.add(printed_log({.test = test, .ranks = 16, .era = Era::y2025}));
  expect_read(all);
  std::erase_if(all.lines, [](const std::string& l) { return l.find("starting") != l.npos; });
  expect_read(all);
}

TEST(NcclTestsLog, ASectionOfSendReceiveIsLeftOutAndNamed) {
  PrintedTest sendrecv = kPrintedTests[0];
  sendrecv.name = "sendrecv", sendrecv.reduces = false;
  sendrecv.collective = Collective::barrier;  // busbw = algbw
  PrintedLog all = printed_log({.ranks = 8});
  const PrintedLog known = all;
  all.add(printed_log({.test = sendrecv, .ranks = 8}));
  const CollectiveLog log = read(all.text());
  EXPECT_EQ(log.rows, known.rows);
  EXPECT_THAT(log.notes, Contains(HasSubstr("left out: found sendrecv_perf")));
}

TEST(NcclTestsLog, ListedRanksStandWhereTheRoundedBandwidthsAllowThem) {
  // 9.37 / 18.72 fits 634 to 1871 ranks, and every larger number where it reads 18.73.
  const PrintedLog log = printed_log({.ranks = 2160, .start_s = 0, .bytes_per_s = 9.366e9});
  expect_read(log);
  EXPECT_EQ(read(log.text()).rows.front().ranks_per_node, 8);
}

TEST(NcclTestsLog, TheRowsAreBelievedBeforeATitle) {
  // A README lists the programs before the output of one of them: 1.875 is of all-reduce alone.
  const PrintedLog log = printed_log({.ranks = 16});
  expect_read(log,
              "The programs are\n* all_reduce_perf\n* all_gather_perf\n* reduce_scatter_perf\n");
  expect_read(log, "$ ./reduce_scatter_perf -g 16\n");
  // Debug output before the header is no obstacle.
  std::string debug;
  while (debug.size() < 100'000) debug += "node1:77:80 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n";
  expect_read(log, debug);
}

TEST(NcclTestsLog, WhatPrintsTheSameAndIsNotNamedIsRefused) {
  const PrintedLog log = printed_log({.test = kPrintedTests[2], .checks = false});  // all_gather
  EXPECT_THAT(refusal(log.text()), HasSubstr("all_gather_perf or alltoall_perf print the same"));
  EXPECT_EQ(read(log.text(), {.collective = Collective::all_gather}).rows, log.rows);
}

std::string rows_only(const PrintedLog& log) {
  std::string text;
  for (const std::string& line : log.lines)
    if (line[0] != '#') text += line + "\n";
  return text;
}

TEST(NcclTestsLog, RowsOfSeveralRankCountsWithoutHeadersAreSeveralRuns) {
  PrintedLog all;
  std::string text;
  for (const int ranks : {8, 16, 32, 64}) {
    const PrintedLog log = printed_log({.ranks = ranks, .smallest = 1 << 26});
    text += fmt::format("====== {}-node ======\n", ranks / 8) + rows_only(log);
    all.add(log);
  }
  EXPECT_EQ(read(text).rows, all.rows);
}

TEST(NcclTestsLog, RowsThatAreOfNoOneRunAreRefused) {
  // 8 and 64 ranks one after the other in one ascending table.
  const PrintedLog a = printed_log({.ranks = 8, .smallest = 1 << 24, .largest = 1 << 26});
  const PrintedLog b = printed_log({.ranks = 64, .smallest = 1 << 28});
  EXPECT_THAT(refusal(rows_only(a) + rows_only(b)),
              HasSubstr("expected rows of one collective on one number of ranks"));
}

TEST(NcclTestsLog, HostsSayHowManyRanksShareANode) {
  EXPECT_EQ(read(printed_log({.ranks = 16, .ranks_per_node = 4}).text()).rows[0].ranks_per_node, 4);
  EXPECT_EQ(read(printed_log({.ranks = 4, .ranks_per_node = 1}).text()).rows[0].ranks_per_node, 1);
  // Ten ranks on nodes of four: uneven. One name and one device for all: containers.
  EXPECT_EQ(read(printed_log({.ranks = 10, .ranks_per_node = 4}).text()).rows[0].ranks_per_node, 0);
  std::string text = printed_log({.ranks = 2, .ranks_per_node = 1}).text();
  text.replace(text.find("node001"), 7, "node000");
  EXPECT_EQ(read(text).rows[0].ranks_per_node, 0);
}

TEST(NcclTestsLog, AListOfRanksThatWasCutIsCompletedByItsDevicesOrDoubted) {
  // 72 ranks on nodes of four, of which one line is left: the last rank's device is its node's
  // last.
  for (const int left : {0, 70, 71}) {
    PrintedLog log = printed_log({.ranks = 72, .ranks_per_node = 4});
    std::erase_if(log.lines, [left](const std::string& line) {
      return line.starts_with("#  Rank") && !line.starts_with(fmt::format("#  Rank {:2} ", left));
    });
    const CollectiveLog read_back = read(log.text());
    EXPECT_EQ(read_back.rows[0].ranks, 72);
    EXPECT_EQ(read_back.rows[0].ranks_per_node, left == 71 ? 4 : 0);
    EXPECT_THAT(read_back.notes,
                Contains(testing::AllOf(HasSubstr("1 of 72 ranks is listed"),
                                        HasSubstr(left == 71 ? "on each node" : "is not known"))));
  }
}

TEST(NcclTestsLog, AFileThatQuotesTheWordsIsNoLog) {
  EXPECT_FALSE(is_collective_log("libfabric:77:core:ofi_hook_perf(): algbw and busbw counters\n"));
  EXPECT_FALSE(is_collective_log("run all_reduce_perf and read algbw, then busbw\n"));
  EXPECT_TRUE(is_collective_log(printed_log({}).text("node1: ")));
}

/// A log under the accidents of launchers and terminals.
class Accident {
 public:
  explicit Accident(std::uint64_t key) : key_(key) {}

  std::string text() {
    for (std::uint64_t runs = 1 + below(3); runs > 0; --runs) log_.add(printed_log(any_run()));
    const std::string label = below(2) ? kLabels[below(std::size(kLabels))] : "";
    for (std::uint64_t n = below(4); n > 0; --n) shuffle_two_rows();
    std::string all;
    for (std::string& line : log_.lines) {
      // Nothing tells that the highest rank's line is missing.
      const bool rank = line.starts_with("#  Rank");
      if (!rank && below(40) == 0) continue;                             // lost
      if (!rank && below(40) == 0) line.resize(below(line.size() + 1));  // cut
      if (below(30) == 0) all += "node1:77:80 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n";
      if (below(60) == 0) all += "libnl-3.so.200: no version information available\n";
      if (below(60) == 0) all += "\n";
      all += label + line + "\n";
    }
    return all;
  }
  const std::vector<CollectiveSample>& rows() const { return log_.rows; }

 private:
  std::uint64_t below(std::uint64_t k) { return random_below(key_, n_++, k); }

  PrintedRun any_run() {
    static constexpr int kRanks[] = {2, 3, 4, 8, 16, 72, 2160};
    static constexpr double kRates[] = {0.3e9, 3e9, 45e9, 400e9};
    return {.test = kPrintedTests[below(std::size(kPrintedTests))],
            .ranks = kRanks[below(std::size(kRanks))],
            .era = static_cast<Era>(below(4)),
            .lists_ranks = below(2) == 1,
            .bytes_per_s = kRates[below(std::size(kRates))],
            .smallest = 1 << (10 + below(12))};
  }

  /// Neighbours change places: two processes wrote at once.
  void shuffle_two_rows() {
    const std::uint64_t at = below(log_.lines.size() - 1);
    if (log_.lines[at][0] != '#' && log_.lines[at + 1][0] != '#')
      std::swap(log_.lines[at], log_.lines[at + 1]);
  }

  std::uint64_t key_, n_ = 0;
  PrintedLog log_;
};

TEST(NcclTestsLog, AccidentsGiveTheSameRowsOrARefusal) {
  int read_whole = 0, refused = 0;
  for (std::uint64_t key = 1; key <= 1000; ++key) {
    Accident accident(key);
    const std::string text = accident.text();
    try {
      const CollectiveLog log = read(text);
      expect_same_or_unknown_ranks(log, accident.rows(), text);
      if (testing::Test::HasFatalFailure()) FAIL() << "accident " << key;
      read_whole += 10 * log.rows.size() >= 8 * accident.rows().size();
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(read_whole, 700);
  EXPECT_LT(refused, 100);
}

}  // namespace
}  // namespace linerate::bench_logs
