// Tables as people have them: quotes, digits in groups, text before them, columns of a rendering.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "bench_logs/read_log.hpp"

namespace linerate::bench_logs {
namespace {

using testing::Contains;
using testing::HasSubstr;

void expect_one_mebibyte(const std::string& text) {
  const CollectiveLog log = read(text, {.ranks = 8});
  ASSERT_EQ(log.rows.size(), 1u) << text;
  EXPECT_EQ(log.rows[0].bytes, 1048576) << text;
  EXPECT_NEAR(log.rows[0].seconds, 4120.5e-6, 1e-9) << text;
}

TEST(TableForms, DigitsInGroupsAreOneNumber) {
  expect_one_mebibyte("bytes,time_us\n\"1,048,576\",\"4,120.5\"\n");
  expect_one_mebibyte("bytes\ttime_us\n1,048,576\t4,120.5\n");
  expect_one_mebibyte("bytes;time_us\n1_048_576;4_120.5\n");
}

TEST(TableForms, AGroupThatMayBeADecimalIsNotGuessedAt) {
  EXPECT_THAT(refusal("bytes;time_us\n1048576;4,120\n"),
              HasSubstr("the first row that could not be read is line 2: \"1048576;4,120\""));
  EXPECT_THAT(refusal("bytes;seconds\n1048576;0,0041\n"), HasSubstr("line 2: \"1048576;0,0041\""));
  EXPECT_THAT(refusal("bytes;seconds\n1048576;0,004\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("bytes,time_us\n\"1,5\",20\n"), HasSubstr("line 2"));
}

TEST(TableForms, TextAndMarksBeforeTheHeaderArePassedOver) {
  expect_one_mebibyte(
      "\xef\xbb\xbf"
      "bytes,time_us\n1048576,4120.5\n");
  expect_one_mebibyte("# 8 x A100, 2024\nbytes,time_us\n1048576,4120.5\n");
  expect_one_mebibyte("bench --ranks 8\nSize (B)   Time(us)\n1048576   4120.5\n");
}

TEST(TableForms, ProseOfTheSameWordsIsNoHeader) {
  EXPECT_THAT(refusal("the size and time of every message\n12 us were good\n"),
              HasSubstr("the first line is \"the size and time of every message\""));
}

TEST(TableForms, TablesOfTextsAndOfHcclTestHaveBars) {
  expect_one_mebibyte("| size (B) | time (us) |\n|---|---:|\n| 1048576 | 4120.5 |\n");
  expect_one_mebibyte(
      "the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5\n"
      "data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
      "1048576           |     4120.5       |       0.25448        | success\n");
}

TEST(TableForms, LeastAndLargestRepetitionsAreKept) {
  const CollectiveLog log = read("bytes,min_us,avg_us,max_us\n1024,9,10,12\n", {.ranks = 2});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 10e-6);
  EXPECT_DOUBLE_EQ(log.rows[0].low_s, 9e-6);
  EXPECT_DOUBLE_EQ(log.rows[0].high_s, 12e-6);
}

TEST(TableForms, TheGroupMayStandBehindTheNameOfAColumn) {
  const CollectiveLog log = read(
      "size_bytes,ranks,time_oop,busbw_oop,algbw_oop,time_ip,busbw_ip,algbw_ip\n"
      "1048576,4,51.40,30.60,20.40,52.74,29.82,19.88\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_FALSE(log.rows[0].in_place);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 51.4e-6);
  EXPECT_TRUE(log.rows[1].in_place);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 52.74e-6);
}

TEST(TableForms, NvshmemsPerftestIsATable) {
  // NVIDIA/nvshmem issue 39, sizes where the bandwidths say something.
  const CollectiveLog log = read(
      "#reduction_on_stream\n"
      "size(B)     count     type      redop     latency(us)       min_lat(us)       max_lat(us)   "
      " "
      "   algbw(GB/s)   busbw(GB/s)\n"
      "1048576     262144    int       sum       20.000000         19.500            20.500        "
      " "
      "   52.429        91.750\n");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[0].ranks, 8);
  EXPECT_EQ(log.rows[0].dtype, DType::i32);
  EXPECT_DOUBLE_EQ(log.rows[0].low_s, 19.5e-6);
}

TEST(TableForms, NodesTimesRanksOfANodeAreTheRanks) {
  const CollectiveLog log = read("nodes,gpus_per_node,bytes,time_us\n2,8,1024,20\n");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].ranks, 16);
  EXPECT_EQ(log.rows[0].ranks_per_node, 8);
}

TEST(TableForms, TimesOfMoreThanADayAreNone) {
  EXPECT_EQ(read("bytes,seconds\n1024,1e9\n2048,1\n", {.ranks = 2}).rows.size(), 1u);
}

TEST(TableForms, WhatWasAssumedIsSaid) {
  EXPECT_THAT(read("1024,20.5\n", {.ranks = 2}).notes,
              Contains(HasSubstr("no header, so its columns are taken as bytes,seconds, and the "
                                 "first row as 1.02 kB in 20.5 s")));
  EXPECT_THAT(read("size_mb,time_ms\n1,2\n", {.ranks = 2}).notes,
              Contains(HasSubstr("sizes in MB are read as 10^6 bytes; write MiB if 2^20")));
  EXPECT_EQ(read("collective,ranks,bytes,time_us,dtype\nall_reduce,8,64,20,torch.bfloat16\n")
                .rows.at(0)
                .dtype,
            DType::bf16);
}

TEST(TableForms, BandwidthsOfAnotherUnitAreAContradiction) {
  // AWS's nccom-test divides by 2^30.
  EXPECT_THAT(
      refusal("size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
              "33554432        33554432    uint8         768          40.69          40.69\n"),
      HasSubstr("size / time is 1.07 times the algbw"));
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
           {"all-reduc,2,1024,1e-5,f32", "found \"all-reduc\"; did you mean all-reduce?"},
           {"1024,1e-5", "expected 5 cells, found 2"}}) {
    if (row != "1024,1e-5") {
      EXPECT_THAT(refusal(head + row + "\n"), HasSubstr("line 2: \"" + row + "\": ")) << row;
    }
    const CollectiveLog log = read(head + "all-reduce,2,2048,1e-5,f32\n" + row + "\n");
    EXPECT_EQ(log.rows.size(), 1u) << row;
    if (row != "1024,1e-5") {
      EXPECT_THAT(log.unread, HasSubstr(reason)) << row;
    }
  }
}

TEST(TableForms, UnitsMayStandBelowTheNames) {
  for (const char* text : {"size      time\n(B)       (us)\n1048576   4120.5\n",
                           "     size        time\n      (B)        (us)\n  1048576      4120.5\n",
                           "type   size   time\n       (KiB)  (ms)\nfloat  1024   4.1205\n",
                           "size\ttime\n(B)\t(us)\n1048576\t4120.5\n"})
    expect_one_mebibyte(text);
  EXPECT_THAT(refusal("size time\n1048576 4120.5\n"), HasSubstr("expected times with their unit"));
}

TEST(TableForms, TheSummaryOfHcclDemoSaysWhatRanOnHowManyRanks) {
  const CollectiveLog log = read(
      "[SUMMARY REPORT]\n(src!=dst, collective=all_gather, iterations=100)\n"
      "size          count         type          redop         time          algo_bw       nw_bw\n"
      "(B)           (elements)                                (us)          (GB/s)        (GB/s)\n"
      "16777216      4194304       float         none          164.321       102.100       89.338\n"
      "268435456     67108864      float         none          1853.012      144.865       "
      "126.757\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_gather);
  EXPECT_EQ(log.rows[0].ranks, 8);
  EXPECT_NEAR(log.rows[0].seconds, 164.321e-6, 1e-12);
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
      const CollectiveLog log = read(text);
      ASSERT_EQ(log.rows.size(), 3u) << text;
      for (const CollectiveSample& sample : log.rows) EXPECT_EQ(sample.ranks, n) << text;
      EXPECT_EQ(log.rows[1].collective, Collective::all_reduce);
      EXPECT_EQ(log.rows[1].bytes, 67108864);
      EXPECT_NEAR(log.rows[1].seconds, 7.92e-3, 1e-9);
      EXPECT_EQ(log.rows[2].collective, Collective::all_gather);
      EXPECT_EQ(log.rows[2].bytes, n * 16777216);
    }
}

TEST(TableForms, WhatFollowsATableIsNoRow) {
  const CollectiveLog log = read(
      "     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
      "    16777216         8388608     bf16         420          39.95          77.40\n"
      "Avg bus bandwidth:      58.3975GB/s\n");
  EXPECT_EQ(log.rows.size(), 1u);
  EXPECT_THAT(log.notes, testing::Not(Contains(HasSubstr("could not be read"))));
}

TEST(OtherBenchmarks, AreRefusedByName) {
  EXPECT_THAT(refusal("# Benchmarking Allreduce\n# #processes = 4\n"
                      "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
                      "            8         1000         4.50        18.59        11.69\n"),
              HasSubstr("output of Intel MPI Benchmarks"));
  EXPECT_THAT(refusal(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n"
                      " 65536      5000             11045.21            11043.68\n"),
              HasSubstr("output of perftest"));
  EXPECT_THAT(refusal("nvbandwidth Version: v0.4\n"), HasSubstr("output of nvbandwidth"));
  EXPECT_THAT(refusal(std::string("\xff\xfe#\0", 4)), HasSubstr("found UTF-16"));
}

TEST(OsuTable, CommandsSayTheRanks) {
  const std::string table =
      "# OSU MPI Allgather Latency Test v5.8\n# Size       Avg Latency(us)\n4      1.34\n";
  const CollectiveLog log = read("$ mpirun -np 2 -x A=b ./osu_allgather -f\n" + table +
                                 "$ /usr/bin/srun --ntasks=4 ./osu_allgather\n" + table);
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_EQ(log.rows[0].bytes, 8);
  EXPECT_EQ(log.rows[1].ranks, 4);
  EXPECT_EQ(log.rows[1].bytes, 16);
  // A command that does not say how many leaves it open.
  EXPECT_THAT(refusal("$ mpirun -np 2 ./osu_allgather\n" + table +
                      "$ srun -N2 --ntasks-per-node=4 ./osu_allgather\n" + table),
              HasSubstr("give --ranks"));
}

TEST(OsuTable, SeveralTablesOfOneTestAreSaidToBeRepetitions) {
  const std::string table =
      "# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n4      1.34\n";
  EXPECT_THAT(read(table + table, {.ranks = 4}).notes,
              Contains(HasSubstr("2 tables of all-reduce on 4 ranks are taken as repetitions")));
}

TEST(OsuTable, LostMarksOfCommentsAreNoObstacle) {
  const CollectiveLog log = read(
      "OSU MPI Broadcast Latency Test v5.9\n"
      "  Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
      "1                       7.61              6.38              8.84        1000\n",
      {.ranks = 4});
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].collective, Collective::broadcast);
}

TEST(OsuTable, MarksOfRenderingsAreNoObstacle) {
  const std::string table = " OSU MPI Allreduce Latency Test v7.5\n";
  for (const std::string mark : {"\\#", "> #"})
    EXPECT_EQ(
        read(mark + table + mark + " Size       Avg Latency(us)\n4       1.34\n", {.ranks = 4})
            .rows.size(),
        1u)
        << mark;
}

TEST(OsuTable, ColumnsThatTheHeaderDoesNotNameMayFollow) {
  // open-mpi/ompi pull request 12318.
  const std::string table =
      "# OSU MPI-CUDA Reduce Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size   Avg Latency(us)\n"
      "1       50.89             18.27             89.23        1000\n"
      "2       50.20             18.24             88.37        1000\n";
  const CollectiveLog log = read(table + "3 bytes 12\n10 300.7\n", {.ranks = 96});
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 50.20e-6);
}

TEST(OsuTable, OperationsNamedAfterACollectiveAreNone) {
  for (const std::string title : {"Neighborhood Allgather", "Non-blocking Allreduce", "Alltoallw"})
    EXPECT_THAT(refusal("# OSU MPI " + title +
                        " Latency Test v7.2\n# Size       Avg Latency(us)\n4       1.34\n"),
                HasSubstr("is not a collective that a training step uses"))
        << title;
}

TEST(OsuTable, TheFirstRowThatCouldNotBeReadIsQuoted) {
  EXPECT_THAT(refusal("# OSU MPI Allreduce Latency Test v7.2\n# Size   Avg Latency(us)\n4   nan\n"),
              HasSubstr("the first row that could not be read is line 3: \"4 nan\""));
}

}  // namespace
}  // namespace linerate::bench_logs
