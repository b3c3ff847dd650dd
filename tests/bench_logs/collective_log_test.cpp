#include "linerate/bench_logs/log_readers.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "bench_logs/read_log.hpp"
#include "linerate/core/error.hpp"

namespace linerate::bench_logs {
namespace {

using testing::HasSubstr;

constexpr const char* k2023 =
    R"(# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  12 on     node1 device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid  12 on     node1 device  1 [0x08] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.10    0.00    0.00      0     0.10    0.00    0.00      0
     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    21.00   49.93   49.93      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 52.4
)";

TEST(NcclTests, ReadsTheLayoutOf2022OnwardsByItsHeader) {
  const CollectiveLog log = read(k2023);
  ASSERT_EQ(log.rows.size(), 2u);  // the size-0 row carries no information
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_EQ(log.rows[0].bytes, 1048576);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 20e-6);
  EXPECT_TRUE(log.rows[1].in_place);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 21e-6);
}

TEST(NcclTests, ReadsTheLayoutOf2019WithoutRedopAndTakesRanksFromCountPerRank) {
  // all_gather: 4 MiB total, count 262144 floats a rank: 4194304 / (262144 * 4) = 4 ranks.
  const CollectiveLog log = read(
      "# all_gather_perf -b 4M -e 4M\n"
      "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw "
      " error\n"
      "     4194304        262144   float    50.00   83.89   62.91  0e+00    50.00   83.89   62.91 "
      " 0e+00\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_gather);
  EXPECT_EQ(log.rows[0].ranks, 4);
}

TEST(NcclTests, ReadsTheLayoutOf2017) {
  const CollectiveLog log = read(
      "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
      "busbw      res\n"
      "     1048576        262144   float     sum    0.080  13.11  22.94    0e+00    0.079  13.27  "
      "23.23    0e+00\n");
  // busbw/algbw = 1.75: 2/(2 - 1.75) = 8 ranks.
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].ranks, 8);
  // 1 MiB at 13.11 GB/s are 80 us: that year's times are milliseconds.
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 80e-6);
}

TEST(NcclTests, SmallSizesOf2017AreMillisecondsByTheirHeader) {
  const CollectiveLog log = read(
      "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
      "busbw      res\n"
      "           8             2   float     sum    0.038   0.00   0.00    0e+00    0.037   0.00  "
      "0.00    0e+00\n",
      {.ranks = 4});
  EXPECT_DOUBLE_EQ(log.rows.at(0).seconds, 38e-6);
}

std::string error_of(const std::string& text, const CollectiveLogOptions& options = {}) {
  try {
    read(text, options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

TEST(NcclTests, TimesThatContradictTheirBandwidthsAreRefused) {
  // 1 MiB in 20 s is not 52 GB/s.
  const std::string text = replaced(replaced(k2023, " 20.00 ", " 20e6 "), " 21.00 ", " 21e6 ");
  EXPECT_THAT(error_of(text), HasSubstr("times the algbw printed next to it"));
}

TEST(NcclTests, ARowCutOffUnderAHeaderIsNotReadByItsWidth) {
  // The last row ends within its in-place group: eleven words, as a whole row of another test has.
  const CollectiveLog log = read(std::string(k2023) +
                                 "     2097152        524288     float     sum      -1    40.00   "
                                 "52.43   52.43      0    42.00 "
                                 "  49\n");
  EXPECT_EQ(log.rows.size(), 2u);
  EXPECT_THAT(log.notes, testing::Contains(HasSubstr("1 rows could not be read")));
}

TEST(NcclTests, ALostRankLineIsOutvotedByTheBandwidths) {
  // Two rank lines, and busbw/algbw = 1.75: 8 ranks.
  const CollectiveLog log = read(replaced(replaced(k2023, "52.43   52.43", "52.43   91.75"),
                                          "49.93   49.93", "49.93   87.38"));
  EXPECT_EQ(log.rows[0].ranks, 8);
  EXPECT_THAT(log.notes, testing::Contains(HasSubstr("2 ranks are listed")));
}

TEST(NcclTests, AnotherCollectiveThanTheLogSaysIsRefused) {
  EXPECT_THAT(error_of(k2023, {.collective = Collective::all_gather}),
              HasSubstr("says that it reduces, but --collective says all-gather"));
  EXPECT_THAT(error_of("# all_reduce_perf -b 1M\n" + std::string(k2023),
                       {.collective = Collective::reduce_scatter}),
              HasSubstr("the log is of all-reduce, but --collective says reduce-scatter"));
}

TEST(NcclTests, ReadsExtraColumnsTagsAndSkipsInterruptedRows) {
  const CollectiveLog log = read(
      "[1,0]<stdout>:#       size         count      type   redop    root     time   algbw   busbw "
      " i_min i_max i_p99 i_cv% #wrong"
      "     time   algbw   busbw  i_min i_max i_p99 i_cv% #wrong\n"
      "[1,0]<stdout>:     1048576        262144     float     sum      -1    20.00   52.43   78.64 "
      "19.0 25.0 24.0 3.1 0"
      "    1.2e+02    8.74   13.11 19.5 26.0 25.0 3.0 0\n"
      "[1,0]<stdout>:     2097152        524288     float  node1:77 [0] NCCL INFO Channel 00 : 0 1 "
      "2 3\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].ranks, 4);  // 78.64/52.43 = 1.5
  EXPECT_DOUBLE_EQ(log.rows[0].low_s, 19e-6);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 120e-6);
  EXPECT_THAT(log.notes, testing::ElementsAre(HasSubstr("1 rows could not be read")));
}

TEST(NcclTests, TellsReduceScatterFromAllReduceByItsBandwidths) {
  const CollectiveLog log = read(
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
      "time   algbw   busbw #wrong\n"
      "     4194304        262144     float     sum      -1    50.00   83.89   62.91      0    "
      "50.00   83.89   62.91      0\n");
  EXPECT_EQ(log.rows[0].collective, Collective::reduce_scatter);
  EXPECT_EQ(log.rows[0].ranks, 4);
}

TEST(NcclTests, SeveralRunsInOneLogAreToldApart) {
  // Two command lines after each other, 2 and 4 ranks: 1 MiB all-reduce, 4 MiB all-gather.
  const std::string header =
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
      "time   "
      "algbw   busbw #wrong\n";
  const CollectiveLog log = read(
      "$ ./build/all_reduce_perf -b 1M -e 1M -g 2\n# nThread 1 nGpus 2 minBytes 1048576\n"
      "#  Rank  0 Pid 1 on h device 0\n#  Rank  1 Pid 1 on h device 1\n" +
      header +
      "     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    "
      "21.00   "
      "49.93   49.93      0\n# Avg bus bandwidth    : 51.2\n"
      "$ ./build/all_gather_perf -b 4M -e 4M -g 4\n# nThread 1 nGpus 4 minBytes 4194304\n"
      "#  Rank  0 Pid 1 on h device 0\n#  Rank  3 Pid 1 on h device 3\n" +
      header +
      "     4194304        262144     float    none      -1    50.00   83.89   62.91      0    "
      "50.00   "
      "83.89   62.91      0\n");
  ASSERT_EQ(log.rows.size(), 4u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_EQ(log.rows[2].collective, Collective::all_gather);
  EXPECT_EQ(log.rows[2].ranks, 4);  // the lines of ranks 1 and 2 were lost
}

TEST(NcclTests, RanksAreThoseOfOneGroup) {
  std::string text = k2023;
  const std::size_t from = text.find("#  Rank  1 Group  0"), to = text.find('\n', from) + 1;
  const std::string line = text.substr(from, to - from);
  for (const char* other : {"#  Rank  2 Group  1", "#  Rank  3 Group  1"})
    text.insert(to, replaced(line, "#  Rank  1 Group  0", other));
  EXPECT_EQ(read(text).rows.at(0).ranks, 2);  // two communicators of two ranks each
}

TEST(NcclTests, WhatNoTrainingStepUsesIsRefusedByNameOrByItsColumns) {
  const auto log = [](const char* title, const char* root, const char* busbw, int count) {
    return fmt::format(
        "{}\n#       size         count      type   redop    root     time   algbw   busbw #wrong  "
        "   "
        "time   algbw   busbw #wrong\n     4194304        {}     float    none      {}    "
        "50.00   "
        "83.89   {}      0    50.00   83.89   {}      0\n",
        title, count, root, busbw, busbw);
  };
  EXPECT_THAT(refusal(log("# scatter_perf", "0", "62.91", 262144)),
              HasSubstr("bench.log: found scatter_perf, which no training step uses; expected"));
  EXPECT_THAT(refusal(log("# sendrecv_perf", "-1", "83.89", 1048576)),
              HasSubstr("found sendrecv_perf"));
  EXPECT_THAT(refusal(log("#", "0", "62.91", 262144)),
              HasSubstr("found gather_perf or scatter_perf"));
  EXPECT_THAT(refusal(log("#", "-1", "83.89", 1048576)), HasSubstr("found sendrecv_perf"));
  EXPECT_EQ(read(log("#", "0", "83.89", 1048576)).rows.at(0).collective, Collective::broadcast);
}

TEST(NcclTests, WrongResultsAreSaid) {
  std::string text = k2023;
  text.replace(text.find("52.43   52.43      0"), 20, "52.43   52.43      7");
  EXPECT_THAT(read(text).notes, testing::Contains(HasSubstr("1 rows report wrong results")));
  text = k2023;
  text.replace(text.find("0 OK"), 4, "3 FAILED");
  EXPECT_THAT(read(text).notes, testing::Contains(HasSubstr("report wrong results")));
}

TEST(NcclTests, ContradictingRanksAreAnError) {
  try {
    read(k2023, {.ranks = 8});
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("expected 8 ranks as --ranks says, found a log of 2"));
  }
}

TEST(NcclTests, ReadsJson) {
  const CollectiveLog log =
      read(R"({"version": "2.17", "nccl_version": 22808, "args": ["./all_reduce_perf", "-J", "x"],
    "config": {"nthreads": 1, "devices": [{"rank": 0}, {"rank": 1}]},
    "results": [{"size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
      "out_of_place": {"time": 12.5, "alg_bw": 0.08192, "bus_bw": 0.08192, "nwrong": "nan"}, "in_place": null}]})");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 12.5e-6);
}

TEST(Osu, ReadsAllReduceOfVersion5AndTheFullTableOfVersion7) {
  EXPECT_EQ(read("\n# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n4         "
                 "             2.10\n",
                 {.ranks = 4})
                .rows.front()
                .bytes,
            4);
  const CollectiveLog log = read(
      "# OSU MPI-CUDA Broadcast Latency Test v7.1\n# Datatype: MPI_FLOAT.\n"
      "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
      "1024                   10.00              8.00             12.00        1000\n",
      {.ranks = 2});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].collective, Collective::broadcast);
  EXPECT_EQ(log.rows[0].dtype, DType::f32);
  EXPECT_DOUBLE_EQ(log.rows[0].high_s, 12e-6);
}

TEST(Osu, AllGatherSizesAreOneRanksContribution) {
  const std::string text =
      "# OSU MPI Allgather Latency Test v5.9\n# Size       Avg Latency(us)\n1024   10.00\n";
  EXPECT_EQ(read(text, {.ranks = 4}).rows[0].bytes, 4096);
  EXPECT_THROW(read(text), InputError);
}

TEST(Osu, PointToPointIsNamedAndRefused) {
  EXPECT_THROW(read("# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n1   1.5\n"),
               InputError);
}

TEST(Osu, OtherTestsInTheSameLogAreLeftOutAndNamed) {
  const CollectiveLog log = read(
      "# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n1   1.5\n"
      "# OSU MPI Allreduce Latency Test v5.9\n# Size       Avg Latency(us)\n4   2.10\n",
      {.ranks = 4});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_THAT(log.notes, testing::Contains(HasSubstr("\"OSU MPI Latency Test v5.9\" is not a")));
}

TEST(Osu, TailLatenciesAndValidationAreColumnsLikeOthers) {
  const CollectiveLog log = read(
      "# OSU MPI Alltoall Latency Test v7.4\n# Datatype: MPI_CHAR.\n"
      "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations   P50 Tail "
      "Lat(us)"
      "   P90 Tail Lat(us)   P99 Tail Lat(us)  Validation\n"
      "1024   10.00   8.00   12.00   1000   9.00   11.00   11.90   Pass\n",
      {.ranks = 4});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].bytes, 4096);  // per destination
  EXPECT_DOUBLE_EQ(log.rows[0].low_s, 8e-6);
}

TEST(Osu, ABarrierHasNoSize) {
  const CollectiveLog log =
      read("# OSU MPI Barrier Latency Test v5.9\n# Avg Latency(us)\n  3.25\n", {.ranks = 2});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].collective, Collective::barrier);
}

TEST(VTrain, RowsAreNanosecondsAndBandwidthsGiveTheRanks) {
  // 1048576 B in 51400 ns = 20.40 GB/s; 30.60 / 20.40 = 1.5: four ranks.
  const CollectiveLog log = read(
      "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"
      "1048576,262144,float,51400,30.60,52740,29.82\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].ranks, 4);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 51.4e-6);
}

TEST(CollectiveLog, OneLineOfManyMegabytesIsCutNotKept) {
  std::string text = k2023;
  text.insert(0, std::string(64 << 20, 'x') + "\n");
  trace::InputFile input = trace::InputFile::from_memory(std::move(text), "bench.log");
  std::string_view line;
  ASSERT_TRUE(input.next_line(line));
  EXPECT_EQ(line.size(), trace::InputFile::kLongestLine);
  ASSERT_TRUE(input.next_line(line));
  EXPECT_THAT(std::string(line), HasSubstr("nThread"));
}

TEST(CollectiveLog, SomethingElseIsNamedAsSuch) {
  EXPECT_THROW(read("hello\nworld\n"), InputError);
}

}  // namespace
}  // namespace linerate::bench_logs
