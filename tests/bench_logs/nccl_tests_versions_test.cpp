// What some versions, builds and launchers of nccl-tests print unlike the rest: rows of public
// logs, shortened.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "bench_logs/read_log.hpp"

namespace linerate::bench_logs {
namespace {

using testing::HasSubstr;

constexpr const char* kHeader =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    " "
    " algbw   busbw #wrong\n";

std::string ranks(int n) {
  std::string text;
  for (int r = 0; r < n; ++r)
    text += fmt::format("#  Rank {:2} Group  0 Pid 14787 on gpu{:02} device  0 [0x31] A40\n", r, r);
  return text;
}

/// NVIDIA/nccl-tests issue 214: an operation that it does not use, and no check in place.
std::string send_receive(const char* check_in_place) {
  return kHeader + fmt::format(
                       "        4096          1024     float     sum      -1    30.74    0.13    "
                       "0.13      0    "
                       "30.69    0.13    0.13    {0}\n"
                       "     4194304       1048576     float     sum      -1    400.0   10.49   "
                       "10.49      0    "
                       "400.0   10.49   10.49    {0}\n",
                       check_in_place);
}

TEST(NcclTestsVersions, SendReceiveThatNamesAnOperationIsNoAllReduceOfTwo) {
  EXPECT_THAT(refusal(ranks(2) + send_receive("N/A")), HasSubstr("found sendrecv_perf"));
  EXPECT_THAT(refusal("$ ./sendrecv_perf -b 4K\n" + ranks(2) + send_receive("N/A")),
              HasSubstr("found sendrecv_perf"));
  EXPECT_EQ(read(ranks(2) + send_receive("0")).rows.at(0).collective, Collective::all_reduce);
}

TEST(NcclTestsVersions, ListedRanksTellSendReceiveFromAnAllReduceOfTwo) {
  EXPECT_THAT(refusal(ranks(8) + send_receive("0")), HasSubstr("found sendrecv_perf"));
}

TEST(NcclTestsVersions, UntilTheYear2020WhatTravelsIsPrintedTwice) {
  // NVIDIA/nccl issue 340: 128 MiB in 3298.6 us are 40.69 GB/s, of which a half travels.
  const std::string header =
      "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw "
      " "
      "error\n";
  const CollectiveLog log = read("./all_gather_perf -b 8 -e 128M -f 2 -g 2\n" + header +
                                 "       65536          8192   float    16.57    1.98    1.98  "
                                 "0e+00    13.83    2.37    2.37  "
                                 "0e+00\n"
                                 "   134217728      16777216   float   3298.6   20.34   20.34  "
                                 "0e+00   3070.3   21.86   21.86  "
                                 "0e+00\n");
  ASSERT_EQ(log.rows.size(), 4u);
  EXPECT_EQ(log.rows[2].collective, Collective::all_gather);
  EXPECT_EQ(log.rows[2].ranks, 2);
  EXPECT_EQ(log.rows[2].bytes, 134217728);
  EXPECT_DOUBLE_EQ(log.rows[2].seconds, 3298.6e-6);
  EXPECT_TRUE(log.notes.empty());
  // Three quarters on four ranks; a quarter less than that is no collective's.
  EXPECT_EQ(read("./reduce_scatter_perf\n"
                 "#       size   count    type   redop     time   algbw   busbw  error\n"
                 "     4194304  262144   float     sum    50.00   62.91   62.91  0e+00\n")
                .rows.at(0)
                .ranks,
            4);
  EXPECT_NE(refusal("./reduce_scatter_perf\n"
                    "#       size   count    type   redop     time   algbw   busbw  error\n"
                    "     4194304  262144   float     sum    50.00   47.18   47.18  0e+00\n"),
            "no error");
}

TEST(NcclTestsVersions, HypercubeStillPrintsWhatTravelsTwice) {
  // hypercube.cu: algbw = busbw = (n-1)/n of the size over the time, and the operation is "none".
  EXPECT_THAT(
      refusal(ranks(4) + kHeader +
              "     4194304        262144     float    none      -1    50.00   62.91   62.91   "
              "   0    50.00   62.91   62.91      0\n"),
      HasSubstr("found hypercube_perf"));
}

TEST(NcclTestsVersions, ProcessesThatEachRanAloneAreRefusedAndNamed) {
  // NVIDIA/nccl-tests issue 294: built without MPI, sixteen processes each of one rank.
  const std::string rows =
      "   134217728      33554432     float     sum      -1    631.9  212.41    0.00      0     "
      "0.51  "
      "263017.30    0.00      0\n"
      "   536870912     134217728     float     sum      -1   2202.2  243.79    0.00      0     "
      "0.31  "
      "1747057.96    0.00      0\n";
  EXPECT_THAT(refusal(kHeader + rows), HasSubstr("every process measured itself alone"));
  EXPECT_THAT(refusal(ranks(1) + kHeader + rows, {.ranks = 16}),
              HasSubstr("every process measured itself alone"));
}

TEST(NcclTestsVersions, LabelsBeforeEveryWriteAreTakenOutOfTheRow) {
  // NVIDIA/nccl issue 1453: MPICH's launcher labels each write of a row.
  const CollectiveLog log = read(std::string("[0] ") + kHeader +
                                 "[0]      8388608       2097152     float     sum      -1[0]    "
                                 "992.6    8.45   16.20      0[0]     986.0    8.51   16.31      "
                                 "0\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].bytes, 8388608);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 992.6e-6);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 986.0e-6);
}

TEST(NcclTestsVersions, BlanksOfWebPagesAreBlanks) {
  std::string text =
      std::string(kHeader) +
      "     4194304       1048576     float     sum      -1    50.00   83.89  146.80  "
      "    0    50.00   83.89  146.80      0\n";
  for (std::size_t at = 0; (at = text.find("  ", at)) != std::string::npos; at += 3)
    text.replace(at, 1, "\xc2\xa0");
  EXPECT_EQ(read(text).rows.size(), 2u);
}

TEST(NcclTestsVersions, TimesInPlaceAloneAreOfInPlace) {
  // nccl-tests leaves the columns out of place blank when it replays a trace.
  const std::string blank(32, ' ');
  const std::string row = "     4194304       1048576     float     sum      -1";
  const std::string group = "    50.00   83.89  146.80      0";
  const CollectiveLog log = read(kHeader + row + blank + group + "\n");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_TRUE(log.rows[0].in_place);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 50e-6);
  // Cut behind its first group, a row says nothing of the second.
  EXPECT_THAT(refusal(kHeader + row + group + "\n"), HasSubstr("holds no row"));
  // rccl-tests writes the columns of one alone.
  const std::string one =
      "#       size         count      type   redop    root     time   algbw   busbw #wrong\n";
  EXPECT_TRUE(read("#                                          in-place\n" + one + row + group)
                  .rows.at(0)
                  .in_place);
  EXPECT_FALSE(read("#                                      out-of-place\n" + one + row + group)
                   .rows.at(0)
                   .in_place);
}

TEST(NcclTestsVersions, JsonHasNullWhereNothingWasCheckedAndTimesOfIterations) {
  const CollectiveLog log = read(
      R"({"version":1,"args":["./bench"],"nccl_version":22900,
      "config":{"devices":[{"rank":0,"hostname":"a","device":0},{"rank":1,"hostname":"b","device":0}]},
      "results":[{"size":1048576,"count":131072,"type":"float","redop":"none","root":"    -1",
      "out_of_place":{"time":50.0,"alg_bw":20.97152,"bus_bw":10.48576,"nwrong":0.0},
      "out_of_place_per_iter":{"min_us":45.0,"max_us":61.0},
      "in_place":{"time":50.0,"alg_bw":20.97152,"bus_bw":10.48576,"nwrong":null}}]})");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_to_all);  // all-gather is checked in place
  EXPECT_DOUBLE_EQ(log.rows[0].low_s, 45e-6);
  EXPECT_DOUBLE_EQ(log.rows[0].high_s, 61e-6);
  EXPECT_EQ(log.rows[0].ranks_per_node, 1);
}

/// An object of rccl-tests' -Z json.
std::string rccl_object(const char* name, long bytes, double us, int in_place, int each = 1) {
  return fmt::format(
      R"({{"#wrong":"0","algBw":{0},"busBw":{1},"gpusPerRank":{6},"ranks":4,"ranksPerNode":2,)"
      R"("nodes":2,"gpus":{7},"inPlace":{2},"name":"{3}","redop":"sum","size":{4},"time":{5},)"
      R"("type":"float"}})",
      static_cast<double>(bytes) / us * 1e-3,
      static_cast<double>(bytes) / us * 2e-3 * (4 * each - 1) / (4 * each), in_place, name, bytes,
      us, each, 4 * each);
}

TEST(RcclTestsJson, LinesAndListsAreReadAsItsTable) {
  const std::vector<std::string> objects = {
      rccl_object("AllReduce", 1024, 19.0, 0), rccl_object("AllReduce", 1024, 18.5, 1),
      rccl_object("AllReduce", 1 << 20, 80.0, 0), rccl_object("AllReduce", 1 << 20, 79.0, 1)};
  const std::string lines = fmt::format("{}\n", fmt::join(objects, "\n")),
                    list = fmt::format("[\n{}\n]\n", fmt::join(objects, ",\n"));
  std::string labelled = "WARNING: Open MPI will create a shared memory backing file {x}\n";
  for (const std::string& o : objects) labelled += "[1,0]<stdout>:" + o + "\n";
  for (const std::string& text : {lines, list, labelled}) {
    const CollectiveLog log = read(text);
    ASSERT_EQ(log.rows.size(), 4u) << text;
    EXPECT_EQ(log.format, "rccl-tests JSON");
    for (const CollectiveSample& row : log.rows) {
      EXPECT_EQ(row.collective, Collective::all_reduce);
      EXPECT_EQ(row.ranks, 4);
      EXPECT_EQ(row.ranks_per_node, 2);
      EXPECT_EQ(row.dtype, DType::f32);
    }
    EXPECT_EQ(log.rows[0].bytes, 1024);
    EXPECT_NEAR(log.rows[0].seconds, 19.0e-6, 1e-9);
    EXPECT_FALSE(log.rows[0].in_place);
    EXPECT_TRUE(log.rows[1].in_place);
  }
  // Processes with two devices each.
  EXPECT_EQ(read(rccl_object("AllReduce", 1024, 19.0, 0, 2) + "\n").rows.at(0).ranks, 8);
}

TEST(NcclTestsJson, IsReadAmongWhatLaunchersWrite) {
  const std::string json =
      "{\n \"nccl_version\": 22705,\n \"args\": [\"./all_reduce_perf\"],\n \"config\": "
      "{\"devices\": [{\"rank\": 0, \"device\": 0, \"hostname\": \"a\"}, {\"rank\": 1, "
      "\"device\": 1, \"hostname\": \"a\"}]},\n \"results\": [{\"size\": 1048576, \"count\": "
      "262144, \"type\": \"float\", \"redop\": \"sum\", \"root\": -1, \"out_of_place\": {\"time\": "
      "50.0, \"alg_bw\": 20.971520, \"bus_bw\": 20.971520, \"nwrong\": 0}}]\n}\n";
  std::string labelled = "mpirun: warning: no binding {default}\n";
  std::string rest = json;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    labelled += "[1,0]<stdout>:" + rest.substr(0, end + 1);
    rest.erase(0, end + 1);
  }
  for (const std::string& text :
       {json, "srun: job 12 queued\nNCCL version 2.27.5\n" + json + "srun: done\n", labelled}) {
    const CollectiveLog log = read(text);
    ASSERT_EQ(log.rows.size(), 1u) << text;
    EXPECT_EQ(log.format, "nccl-tests JSON");
    EXPECT_EQ(log.rows[0].ranks, 2);
    EXPECT_EQ(log.rows[0].bytes, 1 << 20);
    EXPECT_NEAR(log.rows[0].seconds, 50e-6, 1e-9);
  }
}

}  // namespace
}  // namespace linerate::bench_logs
