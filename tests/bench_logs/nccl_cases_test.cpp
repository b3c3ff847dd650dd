// What versions, builds and launchers of nccl-tests and rccl-tests print: rows of public logs,
// shortened. Each text has the rows that it is read as, or what its refusal says.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "bench_logs/read_log.hpp"

namespace linerate::bench_logs {
namespace {

using testing::HasSubstr;

TEST_P(Cases, OfNcclTests) {
  const Case& c = GetParam();
  if (c.rows.empty()) {
    EXPECT_THAT(refusal(c.text, c.options), HasSubstr(c.said));
    return;
  }
  const CollectiveLog log = read(c.text, c.options, c.file);
  EXPECT_EQ(rows_of(log), c.rows);
  EXPECT_THAT(fmt::format("{}", fmt::join(log.notes, "\n")), HasSubstr(c.said));
}

std::string with(std::string text, const std::string& what, const std::string& replacement) {
  return replaced(text, what, replacement);
}

std::string ranks(int n) {
  std::string text;
  for (int r = 0; r < n; ++r)
    text += fmt::format("#  Rank {:2} Group  0 Pid 14787 on gpu{:02} device  0 [0x31] A40\n", r, r);
  return text;
}

/// A log as version 2.13 prints it, of two ranks on one host. Its row of no bytes says nothing.
const std::string k2023 =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor)\n#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid  12 on     node1 device  0 [0x07] NVIDIA A100\n"
    "#  Rank  1 Group  0 Pid  12 on     node1 device  1 [0x08] NVIDIA A100\n#\n"
    "#                                       out-of-place                       in-place\n" +
    kBoth +
    "#        (B)    (elements)                    (us)  (GB/s)  (GB/s)            (us)\n"
    "        0             0     float     sum      -1     0.10    0.00    0.00      0     0.10    "
    "0.00    0.00      0\n"
    "  1048576        262144     float     sum      -1    20.00   52.43   52.43      0    21.00   "
    "49.93   49.93      0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 52.4\n";
const std::string k2023Rows = "all-reduce 2 1048576 20 /2\nall-reduce 2 1048576 21 /2 in place\n";
const std::string kOf2017 =
    "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
    "busbw      res\n";
const std::string kOf2019 =
    "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  "
    "error\n";

INSTANTIATE_TEST_SUITE_P(
    Eras, Cases,
    testing::Values(
        Case{"Of2023", k2023, k2023Rows},
        Case{"Of2019TakesRanksFromTheCountOfARank",
             "# all_gather_perf -b 4M -e 4M\n" + kOf2019 +
                 "     4194304        262144   float    50.00   83.89   62.91  0e+00    50.00   "
                 "83.89   62.91  0e+00\n",
             "all-gather 4 4194304 50\nall-gather 4 4194304 50 in place\n"},
        // busbw / algbw = 1.75: 8 ranks. 1 MiB at 13.11 GB/s are 80 us: that year's times are ms.
        Case{"Of2017",
             kOf2017 + "     1048576        262144   float     sum    0.080  13.11  22.94 "
                       "   0e+00    0.079  13.27  23.23    0e+00\n",
             "all-reduce 8 1048576 80\nall-reduce 8 1048576 79 in place\n"},
        Case{"SmallSizesOf2017AreMsByTheirHeader",
             kOf2017 +
                 "           8             2   float     sum    0.038   0.00   0.00    0e+00  "
                 "  0.037   0.00   0.00    0e+00\n",
             "all-reduce 4 8 38\nall-reduce 4 8 37 in place\n",
             "",
             {.ranks = 4}},
        // NVIDIA/nccl issue 340: 128 MiB in 3298.6 us are 40.69 GB/s, of which a half travels.
        Case{"UntilTheYear2020WhatTravelsIsPrintedTwice",
             "./all_gather_perf -b 8 -e 128M -f 2 -g 2\n" + kOf2019 +
                 "       65536          8192   float    16.57    1.98    1.98  0e+00    13.83    "
                 "2.37    2.37  0e+00\n"
                 "   134217728      16777216   float   3298.6   20.34   20.34  0e+00   3070.3   "
                 "21.86   21.86  0e+00\n",
             "all-gather 2 65536 16.57\nall-gather 2 65536 13.83 in place\nall-gather 2 134217728 "
             "3298.6\nall-gather 2 134217728 3070.3 in place\n"},
        // Three quarters on four ranks; a quarter less than that is no collective's.
        Case{
            "WhatTravelsOnFourRanks",
            "./reduce_scatter_perf\n#       size   count    type   redop     time   algbw   busbw  "
            "error\n     4194304  262144   float     sum    50.00   62.91   62.91  0e+00\n",
            "reduce-scatter 4 4194304 50\n"},
        Case{
            "WhatTravelsNowhere",
            "./reduce_scatter_perf\n#       size   count    type   redop     time   algbw   busbw  "
            "error\n     4194304  262144   float     sum    50.00   47.18   47.18  0e+00\n",
            "", "bench.log: "},
        // hypercube.cu: algbw = busbw = (n-1)/n of the size over the time, and redop is "none".
        Case{"HypercubeStillPrintsWhatTravelsTwice",
             ranks(4) + kBoth +
                 "     4194304        262144     float    none      -1    50.00   62.91   62.91    "
                 "  "
                 "0    50.00   62.91   62.91      0\n",
             "", "found hypercube_perf"},
        Case{"ReduceScatterByItsBandwidths",
             kBoth +
                 "     4194304        262144     float     sum      -1    50.00   83.89   62.91 "
                 "     0    50.00   83.89   62.91      0\n",
             "reduce-scatter 4 4194304 50\nreduce-scatter 4 4194304 50 in place\n"}),
    case_name);

/// 4 MiB at 83.89 GB/s.
std::string other_test(const char* title, const char* root, const char* busbw, int count) {
  return title + kBoth +
         fmt::format(
             "     4194304  {}     float    none      {}    50.00   83.89   {}      0    "
             "50.00   83.89   {}      0\n",
             count, root, busbw, busbw);
}
/// NVIDIA/nccl-tests issue 214: an operation that it does not use, and no check in place.
std::string send_receive(const char* check_in_place) {
  return kBoth +
         fmt::format(
             "   4096          1024     float     sum      -1    30.74    0.13    0.13      0 "
             "   30.69    0.13    0.13    {0}\n"
             "4194304       1048576     float     sum      -1    400.0   10.49   10.49      0 "
             "   400.0   10.49   10.49    {0}\n",
             check_in_place);
}
/// NVIDIA/nccl-tests issue 294: built without MPI, sixteen processes each of one rank.
const std::string kAlone = kBoth +
                           "   134217728      33554432     float     sum      -1    631.9  212.41  "
                           "  0.00      0     0.51  "
                           "263017.30    0.00      0\n"
                           "   536870912     134217728     float     sum      -1   2202.2  243.79  "
                           "  0.00      0     0.31  "
                           "1747057.96    0.00      0\n";

INSTANTIATE_TEST_SUITE_P(
    Tests, Cases,
    testing::Values(
        Case{"ScatterIsNotUsed", other_test("# scatter_perf\n", "0", "62.91", 262144), "",
             "bench.log: found scatter_perf, which no training step uses; expected"},
        Case{"SendReceiveIsNotUsed", other_test("# sendrecv_perf\n", "-1", "83.89", 1048576), "",
             "found sendrecv_perf"},
        Case{"GatherOrScatterByTheRoot", other_test("#\n", "0", "62.91", 262144), "",
             "found gather_perf or scatter_perf"},
        Case{"SendReceiveByTheColumns", other_test("#\n", "-1", "83.89", 1048576), "",
             "found sendrecv_perf"},
        Case{"BroadcastByTheRoot", other_test("#\n", "0", "83.89", 1048576),
             "broadcast 0 4194304 50\nbroadcast 0 4194304 50 in place\n"},
        Case{"SendReceiveThatNamesAnOperation", ranks(2) + send_receive("N/A"), "",
             "found sendrecv_perf"},
        Case{"SendReceiveWithItsCommand",
             "$ ./sendrecv_perf -b 4K\n" + ranks(2) + send_receive("N/A"), "",
             "found sendrecv_perf"},
        Case{"AllReduceOfTwo", ranks(2) + send_receive("0"),
             "all-reduce 2 4096 30.74 /1\nall-reduce 2 4096 30.69 /1 in place\nall-reduce 2 "
             "4194304 400 /1\nall-reduce 2 4194304 400 /1 in place\n"},
        Case{"ListedRanksTellSendReceiveFromAnAllReduceOfTwo", ranks(8) + send_receive("0"), "",
             "found sendrecv_perf"},
        Case{"ProcessesThatEachRanAlone", kAlone, "", "every process measured itself alone"},
        Case{"ListedProcessesThatEachRanAlone",
             ranks(1) + kAlone,
             "",
             "every process measured itself alone",
             {.ranks = 16}},
        // 1 MiB in 20 s is not 52 GB/s.
        Case{"TimesThatContradictTheirBandwidths",
             with(with(k2023, " 20.00 ", " 20e6 "), " 21.00 ", " 21e6 "), "",
             "times the algbw printed next to it"},
        // Two rank lines, and busbw / algbw = 1.75: 8 ranks.
        Case{"LostRankLinesAreOutvotedByTheBandwidths",
             with(with(k2023, "52.43   52.43", "52.43   91.75"), "49.93   49.93", "49.93   87.38"),
             "all-reduce 8 1048576 20 /2\nall-reduce 8 1048576 21 /2 in place\n",
             "2 ranks are listed"},
        Case{"OtherRanksThanTheLogSays",
             k2023,
             "",
             "expected 8 ranks as --ranks says, found a log of 2",
             {.ranks = 8}},
        Case{"OtherCollectiveThanTheRowsSay",
             k2023,
             "",
             "says that it reduces, but --collective says all-gather",
             {.collective = Collective::all_gather}},
        Case{"OtherCollectiveThanTheTitleSays",
             "# all_reduce_perf -b 1M\n" + k2023,
             "",
             "the log is of all-reduce, but --collective says reduce-scatter",
             {.collective = Collective::reduce_scatter}},
        Case{"RanksOfOneGroup",
             with(k2023, "#\n#       ",
                  "#  Rank  2 Group  1 Pid  12 on     node1 device  2 [0x09] NVIDIA A100\n"
                  "#  Rank  3 Group  1 Pid  12 on     node1 device  3 [0x0a] NVIDIA A100\n"
                  "#\n#       "),
             "all-reduce 2 1048576 20 /2\nall-reduce 2 1048576 21 /2 in place\n"},
        Case{"WrongRows", with(k2023, "52.43   52.43      0", "52.43   52.43      7"), k2023Rows,
             "1 rows report wrong results"},
        Case{"WrongByTheFooter", with(k2023, "0 OK", "3 FAILED"), k2023Rows,
             "report wrong results"}),
    case_name);

const std::string kInPlaceRow = "     4194304       1048576     float     sum      -1";
const std::string kInPlaceGroup = "    50.00   83.89  146.80      0";

INSTANTIATE_TEST_SUITE_P(
    Lines, Cases,
    testing::Values(
        // The last row ends within its in-place group: eleven words, as a whole row of another
        // test has.
        Case{"ARowCutOffIsNotReadByItsWidth",
             k2023 + "  2097152        524288     float     sum      -1    40.00   52.43   52.43   "
                     "   0    42.00   49\n",
             k2023Rows, "1 rows could not be read"},
        Case{
            "ExtraColumnsLabelsAndInterruptedRows",
            "[1,0]<stdout>:#  size  count  type  redop  root  time  algbw  busbw  i_min i_max "
            "i_p99 i_cv% #wrong  time  algbw  busbw  i_min i_max i_p99 i_cv% #wrong\n"
            "[1,0]<stdout>:  1048576  262144  float  sum  -1  20.00  52.43  78.64  19.0 25.0 24.0 "
            "3.1 0  1.2e+02  8.74  13.11  19.5 26.0 25.0 3.0 0\n"
            "[1,0]<stdout>:  2097152  524288  float  node1:77 [0] NCCL INFO Channel 00 : 0 1 2 3\n",
            "all-reduce 4 1048576 20 19..25\nall-reduce 4 1048576 120 19.5..26 in place\n",
            "1 rows could not be read"},
        // NVIDIA/nccl issue 1453: MPICH's launcher labels each write of a row.
        Case{"LabelsBeforeEveryWriteAreTakenOutOfTheRow",
             "[0] " + kBoth +
                 "[0]      8388608       2097152     float     sum      -1[0]    992.6    8.45   "
                 "16.20      0[0]     986.0    8.51   16.31      0\n",
             "all-reduce 24 8388608 992.6\nall-reduce 24 8388608 986 in place\n"},
        Case{"BlanksOfWebPagesAreBlanks",
             with(kBoth + kInPlaceRow + kInPlaceGroup + kInPlaceGroup + "\n", "  ", "\xc2\xa0 "),
             "all-reduce 8 4194304 50\nall-reduce 8 4194304 50 in place\n"},
        // nccl-tests leaves the columns out of place blank when it replays a trace.
        Case{"TimesAfterAGapAreInPlace",
             kBoth + kInPlaceRow + std::string(32, ' ') + kInPlaceGroup + "\n",
             "all-reduce 8 4194304 50 in place\n"},
        // Cut behind its first group, a row says nothing of the second.
        Case{"TimesWithoutAGapAreACutRow", kBoth + kInPlaceRow + kInPlaceGroup + "\n", "",
             "holds no row"},
        // rccl-tests writes the columns of one alone.
        Case{"InPlaceAloneByTheLineAbove",
             "#                            in-place\n" + kOne + kInPlaceRow + kInPlaceGroup,
             "all-reduce 8 4194304 50 in place\n"},
        Case{"OutOfPlaceAloneByTheLineAbove",
             "#                        out-of-place\n" + kOne + kInPlaceRow + kInPlaceGroup,
             "all-reduce 8 4194304 50\n"},
        // 2 and 4 ranks, of which the lines of ranks 1 and 2 were lost.
        Case{
            "SeveralRunsInOneLog",
            "$ ./build/all_reduce_perf -b 1M -e 1M -g 2\n# nThread 1 nGpus 2 minBytes 1048576\n"
            "#  Rank  0 Pid 1 on h device 0\n#  Rank  1 Pid 1 on h device 1\n" +
                kBoth +
                "     1048576        262144     float     sum      -1    20.00   52.43   52.43     "
                " "
                "0    21.00   49.93   49.93      0\n# Avg bus bandwidth    : 51.2\n"
                "$ ./build/all_gather_perf -b 4M -e 4M -g 4\n# nThread 1 nGpus 4 minBytes 4194304\n"
                "#  Rank  0 Pid 1 on h device 0\n#  Rank  3 Pid 1 on h device 3\n" +
                kBoth +
                "     4194304        262144     float    none      -1    50.00   83.89   62.91     "
                " "
                "0    50.00   83.89   62.91      0\n",
            "all-reduce 2 1048576 20 /2\nall-reduce 2 1048576 21 /2 in place\nall-gather 4 4194304 "
            "50 /4\nall-gather 4 4194304 50 /4 in place\n"},
        Case{"SomethingElse", "hello\nworld\n", "", "found none of their headers"}),
    case_name);

TEST(CollectiveLog, OneLineOfManyMegabytesIsCutNotKept) {
  trace::InputFile input =
      trace::InputFile::from_memory(std::string(64 << 20, 'x') + "\n" + k2023, "bench.log");
  std::string_view line;
  ASSERT_TRUE(input.next_line(line));
  EXPECT_EQ(line.size(), trace::InputFile::kLongestLine);
  ASSERT_TRUE(input.next_line(line));
  EXPECT_THAT(std::string(line), HasSubstr("nThread"));
}

const std::string kJson =
    "{\n \"nccl_version\": 22705,\n \"args\": [\"./all_reduce_perf\"],\n \"config\": {\"devices\": "
    "[{\"rank\": 0, \"device\": 0, \"hostname\": \"a\"}, {\"rank\": 1, \"device\": 1, "
    "\"hostname\": \"a\"}]},\n \"results\": [{\"size\": 1048576, \"count\": 262144, \"type\": "
    "\"float\", \"redop\": \"sum\", \"root\": -1, \"out_of_place\": {\"time\": 50.0, \"alg_bw\": "
    "20.971520, \"bus_bw\": 20.971520, \"nwrong\": 0}}]\n}\n";
const std::string kJsonRows = "all-reduce 2 1048576 50 /2\n";

/// Each line after a launcher's label.
std::string labelled(const std::string& text) {
  return "[1,0]<stdout>:" + with(text.substr(0, text.size() - 1), "\n", "\n[1,0]<stdout>:") + "\n";
}

/// An object of rccl-tests' -Z json.
std::string rccl_object(long bytes, double us, int in_place, int each = 1) {
  return fmt::format(
      R"({{"#wrong":"0","algBw":{0},"busBw":{1},"gpusPerRank":{5},"ranks":4,"ranksPerNode":2,)"
      R"("nodes":2,"gpus":{6},"inPlace":{2},"name":"AllReduce","redop":"sum","size":{3},)"
      R"("time":{4},"type":"float"}})",
      static_cast<double>(bytes) / us * 1e-3,
      static_cast<double>(bytes) / us * 2e-3 * (4 * each - 1) / (4 * each), in_place, bytes, us,
      each, 4 * each);
}
const std::vector<std::string> kRccl = {rccl_object(1024, 19.0, 0), rccl_object(1024, 18.5, 1),
                                        rccl_object(1 << 20, 80.0, 0),
                                        rccl_object(1 << 20, 79.0, 1)};
const std::string kRcclLines = fmt::format("{}\n", fmt::join(kRccl, "\n")),
                  kRcclRows =
                      "all-reduce 4 1024 19 /2\nall-reduce 4 1024 18.5 /2 in place\nall-reduce 4 "
                      "1048576 80 /2\nall-reduce 4 1048576 79 /2 in place\n";

INSTANTIATE_TEST_SUITE_P(
    Json, Cases,
    testing::Values(
        Case{"OfOneRun",
             R"({"version": "2.17", "nccl_version": 22808, "args": ["./all_reduce_perf", "-J"],
    "config": {"nthreads": 1, "devices": [{"rank": 0}, {"rank": 1}]},
    "results": [{"size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
      "out_of_place": {"time": 12.5, "alg_bw": 0.08192, "bus_bw": 0.08192, "nwrong": "nan"},
      "in_place": null}]})",
             "all-reduce 2 1024 12.5\n"},
        // All-gather is checked in place.
        Case{"NullWhereNothingWasCheckedAndTimesOfIterations",
             R"({"version":1,"args":["./bench"],"nccl_version":22900,
      "config":{"devices":[{"rank":0,"hostname":"a","device":0},
      {"rank":1,"hostname":"b","device":0}]},
      "results":[{"size":1048576,"count":131072,"type":"float","redop":"none","root":"    -1",
      "out_of_place":{"time":50.0,"alg_bw":20.97152,"bus_bw":10.48576,"nwrong":0.0},
      "out_of_place_per_iter":{"min_us":45.0,"max_us":61.0},
      "in_place":{"time":50.0,"alg_bw":20.97152,"bus_bw":10.48576,"nwrong":null}}]})",
             "all-to-all 2 1048576 50 /1 45..61\nall-to-all 2 1048576 50 /1 in place\n"},
        Case{"Alone", kJson, kJsonRows},
        Case{"AmongLinesOfALauncher",
             "srun: job 12 queued\nNCCL version 2.27.5\n" + kJson + "srun: done\n", kJsonRows},
        Case{"Labelled", "mpirun: warning: no binding {default}\n" + labelled(kJson), kJsonRows},
        Case{"OfRcclTestsInLines", kRcclLines, kRcclRows},
        Case{"OfRcclTestsInAList", fmt::format("[\n{}\n]\n", fmt::join(kRccl, ",\n")), kRcclRows},
        Case{"OfRcclTestsLabelled",
             "WARNING: Open MPI will create a shared memory backing file {x}\n" +
                 labelled(kRcclLines),
             kRcclRows},
        Case{"OfRcclTestsWithTwoDevicesAProcess", rccl_object(1024, 19.0, 0, 2) + "\n",
             "all-reduce 8 1024 19 /4\n"}),
    case_name);

TEST(RcclTestsJson, IsNamed) {
  EXPECT_EQ(read(kRcclLines).format, "rccl-tests JSON");
  EXPECT_EQ(read(kJson).format, "nccl-tests JSON");
}

}  // namespace
}  // namespace linerate::bench_logs
