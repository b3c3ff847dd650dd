// Logs and tables as people have them. Each text of cases/*.case has the rows that it is read as,
// or what its refusal says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "bench_logs/printed_log.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/text.hpp"
#include "support/case_files.hpp"
#include "support/message_of.hpp"
#include "support/says.hpp"

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

using testing::HasSubstr;

CollectiveLog read(const std::string& text, const CollectiveLogOptions& options = {},
                   const std::string& name = "bench.log") {
  trace::InputFile input = trace::InputFile::from_memory(text, name);
  return read_collective_log(input, options);
}

std::string refusal(const std::string& text, const CollectiveLogOptions& options = {}) {
  return support::message_of<InputError>([&] { return read(text, options); });
}

/// A line of each row: collective, ranks, bytes, us. Then what is not usual: "/4" ranks a node, the
/// type, "untyped", the least and the largest repetition, "in place".
std::string rows_of(const CollectiveLog& log) {
  std::string all;
  for (const CollectiveSample& row : log.rows) {
    all += fmt::format("{} {} {} {:g}", name_of(row.collective), row.ranks, row.bytes,
                       row.seconds * 1e6);
    if (row.ranks_per_node > 0) all += fmt::format(" /{}", row.ranks_per_node);
    if (row.dtype != DType::f32) all += fmt::format(" {}", name_of(row.dtype));
    if (!row.says_type) all += " untyped";
    if (row.low_s > 0) all += fmt::format(" {:g}..{:g}", row.low_s * 1e6, row.high_s * 1e6);
    all += row.in_place ? " in place\n" : "\n";
  }
  return all;
}

class Cases : public testing::TestWithParam<FileCase> {};
INSTANTIATE_TEST_SUITE_P(OfFiles, Cases, testing::ValuesIn(cases_in(BENCH_LOG_CASES)),
                         [](const auto& test) { return test.param.name; });

/// "ranks 4", "collective all-gather", "format OSU" and "file NAME" stand below the name of a case.
/// Without the part "rows" the text is refused. A note or the refusal has the part "says".
TEST_P(Cases, AreReadAsTheySay) {
  CollectiveLogOptions options;
  std::string format, file = "bench.log";
  std::istringstream lines(GetParam().part(""));
  for (std::string key, value; lines >> key && std::getline(lines >> std::ws, value);) {
    if (key == "ranks") options.ranks = std::stoi(value);
    if (key == "collective") options.collective = parse_collective(value);
    if (key == "format") format = value;
    if (key == "file") file = value;
  }
  const std::string text = GetParam().part("log"), rows = GetParam().part("rows"),
                    says(trim(GetParam().part("says")));
  if (rows.empty()) {
    EXPECT_THAT(refusal(text, options), HasSubstr(says));
    return;
  }
  const CollectiveLog log = read(text, options, file);
  EXPECT_EQ(rows_of(log), rows);
  EXPECT_THAT(fmt::format("{}", fmt::join(log.notes, "\n")), HasSubstr(says));
  EXPECT_TRUE(format.empty() || log.format == format) << log.format;
}

TEST(CollectiveLog, InUtf16IsRefused) {
  EXPECT_THAT(refusal(std::string("\xff\xfe#\0", 4)), HasSubstr("found UTF-16"));
}

TEST(OsuTable, LabelsOfLaunchersAreTakenOff) {
  const std::string table =
      "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n4      2.10\n8   "
      "2.20\n";
  for (const std::string label : {"0: ", "[1,0]<stdout>:", "[0] ", "(head, rank=0, pid=9) ",
                                  "2024-03-01T12:00:00Z ", "node1: ", "launcher-1  | "})
    EXPECT_EQ(rows_of(read(label + replaced(table, "\n", "\n" + label), {.ranks = 4})),
              "all-reduce 4 4 2.1 u8\nall-reduce 4 8 2.2 u8\n")
        << label;
}

TEST(PlainTable, RemarksAndUnreadableRowsMayComeFirst) {
  for (const char* first : {"# mpirun -n 4, eth0\n", "\n# two\n# remarks\n", "0,0.0001,4\n",
                            "1024,nan,4\n", "1024,0,4\n", "# bytes,seconds,ranks\n"})
    EXPECT_EQ(rows_of(read(first + std::string("1048576,0.001,4\n4194304,0.0035,4\n"))),
              "all-reduce 4 1048576 1000 untyped\nall-reduce 4 4194304 3500 untyped\n")
        << first;
}

TEST(TableForms, ARowThatCannotBeReadIsNamedWithItsReason) {
  const std::string head = "collective,ranks,bytes,seconds,dtype\n";
  for (const auto& [row, reason] : std::vector<std::pair<std::string, std::string>>{
           {"all-reduce,2,1024,-1e-5,f32", "expected a time above 0, found \"-1e-5\""},
           {"all-reduce,2,1024,soon,f32", "expected a time above 0, found \"soon\""},
           {"all-reduce,2,much,1e-5,f32", "expected a size, found \"much\""},
           {"all-reduce,2,1024,1e-5,f33", "expected an element type, found \"f33\""},
           {"all-reduce,0,1024,1e-5,f32", "expected 1 to 10000000 ranks, found \"0\""},
           {"all-reduce,-2,1024,1e-5,f32", "expected 1 to 10000000 ranks, found \"-2\""},
           {"all-reduce,1.5,1024,1e-5,f32", "expected 1 to 10000000 ranks, found \"1.5\""},
           {"all-reduc,2,1024,1e-5,f32", "found \"all-reduc\"; did you mean all-reduce?"}}) {
    EXPECT_THAT(refusal(head + row + "\n"), HasSubstr("line 2: \"" + row + "\": ")) << row;
    const CollectiveLog log = read(head + "all-reduce,2,2048,1e-5,f32\n" + row + "\n");
    EXPECT_EQ(log.rows.size(), 1u) << row;
    EXPECT_THAT(log.unread, HasSubstr(reason)) << row;
  }
  EXPECT_EQ(read(head + "all-reduce,2,2048,1e-5,f32\n1024,1e-5\n").rows.size(), 1u);
}

/// Every cut of a table gives rows of the table, or a refusal.
TEST(PlainTable, CutTablesGiveTheirOwnRowsOrARefusal) {
  const std::string text =
      "bytes,seconds,ranks,collective\n1048576,0.00125,4,all-reduce\n4194304,0.0045,4,all-reduce\n"
      "16777216,0.0175,4,all-reduce\n";
  const std::string whole = rows_of(read(text));
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    try {
      CollectiveLog log = read(text.substr(0, cut));
      for (CollectiveSample& row : log.rows)
        EXPECT_THAT(whole, HasSubstr(rows_of({"", "", {std::move(row)}}))) << cut;
    } catch (const InputError&) {
    }
  }
}

TEST(NcclTestsCsv, SampleTablesAreOfOneRankCountThroughout) {
  const std::filesystem::path folder = "../shared/data/collectives";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no sample tables in " << folder;
  for (const auto& [name, ranks] : {std::pair("a100_nccl_allreduce_4gpu.csv", 4),
                                    std::pair("v100_nccl_allreduce_8gpu.csv", 8)}) {
    const CollectiveLog log = load_collective_log(folder / name);
    EXPECT_EQ(log.rows.size(), 2048u);
    EXPECT_EQ(log.rows.front().ranks, ranks);
    EXPECT_EQ(log.rows.front().collective, Collective::all_reduce);
  }
}

TEST(DeepSpeedLog, SizesAreOfTheWholeArrayAndTheBandwidthsCountTheRanks) {
  // As calc_bw_log() computes them on n ranks, of an all-reduce with a factor of 2 or without: KB
  // is 1024 bytes, a gather states one rank's part.
  for (const int n : {2, 8, 24})
    for (const double twice : {2.0, 1.0}) {
      std::string text =
          "Comm. Op            Message Size        Count               Total Latency(ms)   "
          "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)\n";
      const auto row = [&](const char* size, double bytes, double ms, double tput, double busbw) {
        const double gbps = bytes * 8e-6 / ms;
        text +=
            fmt::format("                    {:<20}{:<20}{:<20.2f}{:<20.2f}{:<20.2f}{:<20.2f}\n",
                        size, 3, 3 * ms, ms, tput * gbps, busbw * gbps);
      };
      const double share = (n - 1.0) / n;
      text += "broadcast\n";
      row("50.0 MB", 52428800, 6.61, 1, 1);
      text += "all_reduce\n";
      row("0B", 0, 0.25, twice, 2 * share);
      row("64.0 MB", 67108864, 7.92, twice, 2 * share);
      text += "[rank0] an interruption\nall_gather_into_tensor\n";
      row("16.0 MB", 16777216, 12.34, n, n * share);
      text += "send\n";
      row("16.0 MB", 16777216, 12.34, 1, 1);
      EXPECT_EQ(rows_of(read(text)),
                fmt::format("broadcast {0} 52428800 6610 untyped\nall-reduce {0} 67108864 7920 "
                            "untyped\nall-gather {0} {1} 12340 untyped\n",
                            n, 16777216 * n));
    }
}

// ---- logs as nccl-tests prints them, with launchers' labels, other output between the lines, rows
// cut off and several runs in one file: the rows come back, or a refusal, never other rows ----

/// What may be read of a log whose rank lines are lost: the same rows, or no rank count.
void expect_same_or_unknown_ranks(const CollectiveLog& log,
                                  const std::vector<CollectiveSample>& rows,
                                  const std::string& text) {
  for (const CollectiveSample& sample : log.rows)
    ASSERT_TRUE(std::ranges::any_of(rows,
                                    [&](CollectiveSample row) {
                                      if (sample.ranks == 0) row.ranks = 0;
                                      return sample == row;
                                    }))
        << testing::PrintToString(sample) << " is not in\n"
        << text;
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
  EXPECT_THAT(log.notes, says("left out: found sendrecv_perf"));
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
    EXPECT_THAT(read_back.notes, testing::Contains(testing::AllOf(
                                     HasSubstr("1 of 72 ranks is listed"),
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
