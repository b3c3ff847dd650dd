// Logs and tables as people have them. Each text of cases/*.case has the rows that it is read as,
// or what its refusal says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "bench_logs/read_log.hpp"
#include "linerate/core/text.hpp"
#include "support/case_files.hpp"

namespace linerate::bench_logs {
namespace {

using testing::HasSubstr;

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

TEST(CollectiveLog, OneLineOfManyMegabytesIsCutNotKept) {
  trace::InputFile input =
      trace::InputFile::from_memory(std::string(64 << 20, 'x') + "\n# nThread 1\n", "bench.log");
  std::string_view line;
  ASSERT_TRUE(input.next_line(line));
  EXPECT_EQ(line.size(), trace::InputFile::kLongestLine);
  ASSERT_TRUE(input.next_line(line));
  EXPECT_EQ(line, "# nThread 1");
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

}  // namespace
}  // namespace linerate::bench_logs
