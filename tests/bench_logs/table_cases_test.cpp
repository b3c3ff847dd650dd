// Tables as people have them, and logs that state latencies alone: OSU and DeepSpeed. Each text has
// the rows that it is read as, or what its refusal says (nccl_cases_test.cpp).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "bench_logs/read_log.hpp"

namespace linerate::bench_logs {
namespace {

using testing::HasSubstr;

const std::string kOneMebibyte = "all-reduce 8 1048576 4120.5 untyped\n";
const CollectiveLogOptions kEight = {.ranks = 8}, kFour = {.ranks = 4}, kTwo = {.ranks = 2};

INSTANTIATE_TEST_SUITE_P(
    TableForms, Cases,
    testing::Values(
        Case{"QuotedGroupsOfDigits", "bytes,time_us\n\"1,048,576\",\"4,120.5\"\n", kOneMebibyte, "",
             kEight},
        Case{"GroupsOfDigits", "bytes\ttime_us\n1,048,576\t4,120.5\n", kOneMebibyte, "", kEight},
        Case{"GroupsOfDigitsByUnderscores", "bytes;time_us\n1_048_576;4_120.5\n", kOneMebibyte, "",
             kEight},
        Case{"AGroupThatMayBeADecimal", "bytes;time_us\n1048576;4,120\n", "",
             "the first row that could not be read is line 2: \"1048576;4,120\""},
        Case{"DecimalCommas", "bytes;seconds\n1048576;0,0041\n", "", "line 2: \"1048576;0,0041\""},
        Case{"DecimalCommasOfThreeDigits", "bytes;seconds\n1048576;0,004\n", "", "line 2"},
        Case{"DecimalCommasOfSizes", "bytes,time_us\n\"1,5\",20\n", "", "line 2"},
        Case{"AByteOrderMark",
             "\xef\xbb\xbf"
             "bytes,time_us\n1048576,4120.5\n",
             kOneMebibyte, "", kEight},
        Case{"ARemarkBeforeTheHeader", "# 8 x A100, 2024\nbytes,time_us\n1048576,4120.5\n",
             kOneMebibyte, "", kEight},
        Case{"ACommandBeforeTheHeader", "bench --ranks 8\nSize (B)   Time(us)\n1048576   4120.5\n",
             kOneMebibyte, "", kEight},
        Case{"ProseOfTheSameWords", "the size and time of every message\n12 us were good\n", "",
             "the first line is \"the size and time of every message\""},
        Case{"BarsOfATextsTable", "| size (B) | time (us) |\n|---|---:|\n| 1048576 | 4120.5 |\n",
             kOneMebibyte, "", kEight},
        Case{"BarsOfHcclTest",
             "the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5\n"
             "data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
             "1048576           |     4120.5       |       0.25448        | success\n",
             kOneMebibyte, "", kEight},
        Case{"LeastAndLargestRepetitions", "bytes,min_us,avg_us,max_us\n1024,9,10,12\n",
             "all-reduce 2 1024 10 untyped 9..12\n", "", kTwo},
        Case{"TheGroupBehindTheNameOfAColumn",
             "size_bytes,ranks,time_oop,busbw_oop,algbw_oop,time_ip,busbw_ip,algbw_ip\n"
             "1048576,4,51.40,30.60,20.40,52.74,29.82,19.88\n",
             "all-reduce 4 1048576 51.4 untyped\nall-reduce 4 1048576 52.74 untyped in place\n"},
        // NVIDIA/nvshmem issue 39, sizes where the bandwidths say something.
        Case{"NvshmemsPerftest",
             "#reduction_on_stream\nsize(B)  count  type  redop  latency(us)  min_lat(us)  "
             "max_lat(us)  algbw(GB/s)  busbw(GB/s)\n"
             "1048576  262144  int  sum  20.000000  19.500  20.500  52.429  91.750\n",
             "all-reduce 8 1048576 20 i32 19.5..20.5\n"},
        Case{"NodesTimesRanksOfANode", "nodes,gpus_per_node,bytes,time_us\n2,8,1024,20\n",
             "all-reduce 16 1024 20 /8 untyped\n"},
        Case{"TimesOfMoreThanADay", "bytes,seconds\n1024,1e9\n2048,1\n",
             "all-reduce 2 2048 1e+06 untyped\n", "", kTwo},
        Case{
            "NoHeader", "1024,20.5\n", "all-reduce 2 1024 2.05e+07 untyped\n",
            "no header, so its columns are taken as bytes,seconds, and the first row as 1.02 kB in "
            "20.5 s",
            kTwo},
        Case{"MegabytesAreDecimal", "size_mb,time_ms\n1,2\n", "all-reduce 2 1000000 2000 untyped\n",
             "sizes in MB are read as 10^6 bytes; write MiB if 2^20", kTwo},
        Case{"TypesOfPyTorch",
             "collective,ranks,bytes,time_us,dtype\nall_reduce,8,64,20,torch.bfloat16\n",
             "all-reduce 8 64 20 bf16\n"},
        // AWS's nccom-test divides by 2^30.
        Case{"BandwidthsOfAnotherUnit",
             "size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
             "33554432        33554432    uint8         768          40.69          40.69\n",
             "", "size / time is 1.07 times the algbw"},
        Case{"UnitsBelowTheNames", "size      time\n(B)       (us)\n1048576   4120.5\n",
             kOneMebibyte, "", kEight},
        Case{"UnitsBelowTheEndsOfTheNames",
             "     size        time\n      (B)        (us)\n  1048576      4120.5\n", kOneMebibyte,
             "", kEight},
        Case{"UnitsBelowSomeNames",
             "type   size   time\n       (KiB)  (ms)\nfloat  1024   4.1205\n",
             "all-reduce 8 1048576 4120.5\n", "", kEight},
        Case{"UnitsBelowNamesWithTabs", "size\ttime\n(B)\t(us)\n1048576\t4120.5\n", kOneMebibyte,
             "", kEight},
        Case{"UnitsBelowNoNames", "1024 12.5\n (B)  (us)\n1048576 4120.5\n",
             "all-reduce 8 1024 1.25e+07 untyped\nall-reduce 8 1048576 4.1205e+09 untyped\n", "",
             kEight},
        Case{"NoUnits", "size time\n1048576 4120.5\n", "", "expected times with their unit"},
        Case{"NoUnitsSayTheirLine", "size,latency\n1000,5\n", "",
             "bench.log:1: expected times with their unit"},
        Case{"TheSummaryOfHcclDemo",
             "[SUMMARY REPORT]\n(src!=dst, collective=all_gather, iterations=100)\n"
             "size          count         type          redop         time          algo_bw       "
             "nw_bw\n"
             "(B)           (elements)                                (us)          (GB/s)        "
             "(GB/s)\n"
             "16777216      4194304       float         none          164.321       102.100       "
             "89.338\n"
             "268435456     67108864      float         none          1853.012      144.865       "
             "126.757\n",
             "all-gather 8 16777216 164.321\nall-gather 8 268435456 1853.01\n"},
        Case{"WhatFollowsATableIsNoRow",
             "     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
             "    16777216         8388608     bf16         420          39.95          77.40\n"
             "Avg bus bandwidth:      58.3975GB/s\n",
             "all-reduce 32 16777216 420 bf16\n"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    PlainTables, Cases,
    testing::Values(
        Case{"BytesAndSeconds", "1048576,0.001\n4194304,0.0035\n",
             "all-reduce 4 1048576 1000 untyped\nall-reduce 4 4194304 3500 untyped\n",
             "does not name its collective, so it is taken as all-reduce", kFour},
        Case{"Ranks", "1048576,0.001,2\n1048576,0.0015,4\n",
             "all-reduce 2 1048576 1000 untyped\nall-reduce 4 1048576 1500 untyped\n"},
        Case{"Collectives", "1000 0.001 2 all_gather\n1000 0.002 2 reduce-scatter\n",
             "all-gather 2 1000 1000 untyped\nreduce-scatter 2 1000 2000 untyped\n"},
        Case{"AnyOrderAndUnit",
             "collective;ranks;time_us;size(KiB)\nAllReduce;8;250.5;64\nbroadcast;8;100;64\n",
             "all-reduce 8 65536 250.5 untyped\nbroadcast 8 65536 100 untyped\n"},
        Case{"ATypeBehindTheCollective", "1024,0.001,2,all_reduce,f16\n",
             "all-reduce 2 1024 1000 f16\n"},
        Case{"AColumnOfTypes",
             "bytes,seconds,ranks,collective,type\n1024,0.001,2,all_reduce,bf16\n",
             "all-reduce 2 1024 1000 bf16\n"},
        Case{"TheTypeInTheNameOfTheFile",
             "1024,0.001,2,all_reduce\n",
             "all-reduce 2 1024 1000 f16\n",
             "",
             {},
             "t_all_reduce_f16_10G_2.csv"},
        Case{"NoTypeInTheNameOfTheFile",
             "1024,0.001,2,all_reduce\n",
             "all-reduce 2 1024 1000 untyped\n",
             "",
             {},
             "table_10G.csv"},
        Case{"TheCollectiveInTheNameOfTheFile", "1000,0.1\n", "all-gather 2 1000 100000 untyped\n",
             "", kTwo, "my_allgather.csv"},
        Case{"UnreadableRowsAreCounted",
             "bytes,seconds\n1000,0.1\nabc,0.2\n2000\n3000,-1\n4000,0.4\n",
             "all-reduce 2 1000 100000 untyped\nall-reduce 2 4000 400000 untyped\n",
             "3 rows could not be read", kTwo},
        Case{"ProseComesFirst", "three words here\n1048576,0.001,4\n", "", "none of their headers"},
        // 1048576 B in 51400 ns = 20.40 GB/s; 30.60 / 20.40 = 1.5: four ranks.
        Case{"VTrain",
             "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"
             "1048576,262144,float,51400,30.60,52740,29.82\n",
             "all-reduce 4 1048576 51.4\nall-reduce 4 1048576 52.74 in place\n"},
        // 1 MiB in 20 us is 52.43 GB/s; times 1.75, that of 8 ranks, 91.75.
        Case{"ColumnsOfNcclTests",
             "size,count,type,redop,root,oop-time,oop-algbw,oop-busbw,oop-error,ip-time,ip-algbw,"
             "ip-busbw,ip-error\n"
             "1048576,262144,float,sum,-1,20.00,52.43,91.75,0,21.00,49.93,87.38,0\n",
             "all-reduce 8 1048576 20\nall-reduce 8 1048576 21 in place\n"},
        Case{"ColumnsOfRcclTests",
             "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,"
             "time,algbw,busbw,#wrong\n"
             "0,AllReduce,2,8,4,1,1048576,float,sum,0,20.00,52.43,91.75,0\n"
             "0,AllReduce,2,8,4,1,1048576,float,sum,1,21.00,49.93,87.38,0\n"
             "0,AllGather,2,8,4,1,1048576,float,none,0,20.00,52.43,45.88,0\n",
             "all-gather 8 1048576 20 /4\nall-reduce 8 1048576 20 /4\nall-reduce 8 1048576 21 /4 "
             "in place\n"},
        // 1.75 is no all-gather's.
        Case{"RatiosThatContradictTheNamedCollective",
             "collective,ranks,size,type,time,algbw,busbw\nAllGather,8,1048576,float,20.00,52.43,"
             "91.75\n",
             "all-reduce 8 1048576 20\n",
             "named all_gather_perf, its bandwidths are those of all_reduce_perf"},
        // 3.749 GB/s cut to 3.74 and 5.6235 to 5.62: ratios of 1.4987 to 1.5040, where 1.4960 was.
        Case{"DigitsThatWereCut",
             "size,count,type,redop,time(us),algbw,busbw\n1000000,250000,float,sum,266.73,3.74,"
             "5.62\n4000000,1000000,float,sum,400.00,10.00,14.99\n",
             "all-reduce 4 1000000 266.73\nall-reduce 4 4000000 400\n"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    OtherBenchmarks, Cases,
    testing::Values(Case{"IntelMpi",
                         "# Benchmarking Allreduce\n# #processes = 4\n"
                         "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
                         "            8         1000         4.50        18.59        11.69\n",
                         "", "output of Intel MPI Benchmarks"},
                    Case{"Perftest",
                         " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n"
                         " 65536      5000             11045.21            11043.68\n",
                         "", "output of perftest"},
                    Case{"Nvbandwidth", "nvbandwidth Version: v0.4\n", "", "output of nvbandwidth"},
                    Case{"Utf16", std::string("\xff\xfe#\0", 4), "", "found UTF-16"}),
    case_name);

/// A table of OSU, with its title.
std::string osu(const std::string& test, const std::string& rows,
                const std::string& header = "# Size       Avg Latency(us)\n") {
  return "# OSU MPI " + test + " Latency Test v5.9\n" + header + rows;
}
const std::string kOsu =
    osu("Allreduce", "4                       2.10\n8                       2.20\n16    2.31\n");
const std::string kOsuRows =
    "all-reduce 4 4 2.1 u8\nall-reduce 4 8 2.2 u8\nall-reduce 4 16 2.31 u8\n";
const std::string kMore = kOsuRows + "all-reduce 4 32 2.5 u8\n";
const std::string kGather = osu("Allgather", "4      1.34\n");
const std::string kUnnamed =
    "# OSU MPI-CUDA Reduce Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size   Avg Latency(us)\n"
    "1       50.89             18.27             89.23        1000\n"
    "2       50.20             18.24             88.37        1000\n";
const std::string kUnused = "is not a collective that a training step uses";

INSTANTIATE_TEST_SUITE_P(
    Osu, Cases,
    testing::Values(
        Case{"OfVersion5", kOsu, kOsuRows, "", kFour},
        Case{"TheFullTableOfVersion7",
             "# OSU MPI-CUDA Broadcast Latency Test v7.1\n# Datatype: MPI_FLOAT.\n"
             "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
             "1024                   10.00              8.00             12.00        1000\n",
             "broadcast 2 1024 10 8..12\n", "", kTwo},
        Case{"AllGatherSizesAreOneRanksContribution", osu("Allgather", "1024   10.00\n"),
             "all-gather 4 4096 10 u8\n", "", kFour},
        Case{"AllGatherNeedsRanks", osu("Allgather", "1024   10.00\n"), "", "give --ranks"},
        Case{"PointToPoint", osu("", "1   1.5\n", "# Size          Latency (us)\n"), "", kUnused},
        Case{"OtherTestsAreLeftOutAndNamed",
             "# OSU MPI Latency Test v5.9\n# Size          Latency (us)\n1   1.5\n" + kOsu,
             kOsuRows, "left out: \"OSU MPI Latency Test v5.9\" " + kUnused, kFour},
        Case{"TailLatenciesAndValidation",
             "# OSU MPI Alltoall Latency Test v7.4\n# Datatype: MPI_CHAR.\n"
             "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations   P50 "
             "Tail Lat(us)   P90 Tail Lat(us)   P99 Tail Lat(us)  Validation\n"
             "1024   10.00   8.00   12.00   1000   9.00   11.00   11.90   Pass\n",
             "all-to-all 4 4096 10 u8 8..12\n", "", kFour},
        Case{"ABarrierHasNoSize", osu("Barrier", "  3.25\n", "# Avg Latency(us)\n"),
             "barrier 2 0 3.25 u8\n", "", kTwo},
        Case{"EndsAtAnEmptyLine", kOsu + "\n10                    300.70\n", kOsuRows,
             "1 lines of numbers after the end of a table", kFour},
        Case{"EndsAtAnotherWordCount", kOsu + "32 bytes in 300.7 us\n64        300.70\n", kOsuRows,
             "", kFour},
        Case{"IsTakenUpBehindAWarning",
             kOsu + "[node1:77] mca_btl_tcp: connection reset by peer\n32     2.50\n", kMore, "",
             kFour},
        Case{"IsTakenUpOnlyByItsNextSize",
             kOsu + "[node1:77] mca_btl_tcp: connection reset by peer\n10     300.70\n", kOsuRows,
             "", kFour},
        Case{"CommandsSayTheRanks",
             "$ mpirun -np 2 -x A=b ./osu_allgather -f\n" + kGather +
                 "$ /usr/bin/srun --ntasks=4 ./osu_allgather\n" + kGather,
             "all-gather 2 8 1.34 u8\nall-gather 4 16 1.34 u8\n"},
        Case{"ACommandThatDoesNotSayHowMany",
             "$ mpirun -np 2 ./osu_allgather\n" + kGather +
                 "$ srun -N2 --ntasks-per-node=4 ./osu_allgather\n" + kGather,
             "", "give --ranks"},
        Case{"SeveralTablesOfOneTest", kOsu + kOsu, kOsuRows + kOsuRows,
             "2 tables of all-reduce on 4 ranks are taken as repetitions", kFour},
        Case{"LostMarksOfComments",
             "OSU MPI Broadcast Latency Test v5.9\n"
             "  Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
             "1                       7.61              6.38              8.84        1000\n",
             "broadcast 4 1 7.61 u8 6.38..8.84\n", "", kFour},
        Case{"MarksOfRenderings", replaced(kOsu, "#", "\\#"), kOsuRows, "", kFour},
        Case{"MarksOfQuotations", replaced(kOsu, "#", "> #"), kOsuRows, "", kFour},
        // open-mpi/ompi pull request 12318.
        Case{"ColumnsThatTheHeaderDoesNotName",
             kUnnamed + "3 bytes 12\n10 300.7\n",
             "reduce 96 1 50.89 u8\nreduce 96 2 50.2 u8\n",
             "",
             {.ranks = 96}},
        Case{"Neighborhood", osu("Neighborhood Allgather", "4       1.34\n"), "", kUnused},
        Case{"NonBlocking", osu("Non-blocking Allreduce", "4       1.34\n"), "", kUnused},
        Case{"Alltoallw", osu("Alltoallw", "4       1.34\n"), "", kUnused},
        Case{"TheFirstRowThatCouldNotBeReadIsQuoted", osu("Allreduce", "4   nan\n"), "",
             "the first row that could not be read is line 3: \"4 nan\""}),
    case_name);

TEST(OsuTable, LabelsOfLaunchersAreTakenOff) {
  for (const std::string label : {"0: ", "[1,0]<stdout>:", "[0] ", "(head, rank=0, pid=9) ",
                                  "2024-03-01T12:00:00Z ", "node1: ", "launcher-1  | "})
    EXPECT_EQ(rows_of(read(label + replaced(kOsu, "\n", "\n" + label), {.ranks = 4})), kOsuRows)
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
