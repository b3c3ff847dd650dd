// OSU logs with other output behind and between their tables, and tables of one's own timings.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "bench_logs/read_log.hpp"
#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"

namespace linerate::bench_logs {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr const char* kOsu =
    "# OSU MPI Allreduce Latency Test v7.2\n# Size       Avg Latency(us)\n"
    "4                       2.10\n8                       2.20\n16                      2.31\n";

TEST(OsuTable, EndsAtAnEmptyLine) {
  const CollectiveLog log =
      read(std::string(kOsu) + "\n10                    300.70\n", {.ranks = 4});
  ASSERT_EQ(log.rows.size(), 3u);
  EXPECT_EQ(log.rows.back().bytes, 16);
  EXPECT_THAT(log.notes, Contains(HasSubstr("1 lines of numbers after the end of a table")));
}

TEST(OsuTable, EndsAtAnotherWordCount) {
  const CollectiveLog log = read(
      std::string(kOsu) + "32 bytes in 300.7 us\n64                    300.70\n", {.ranks = 4});
  EXPECT_EQ(log.rows.size(), 3u);
}

TEST(OsuTable, IsTakenUpBehindAWarningOnlyByItsNextSize) {
  const std::string warning = "[node1:77] mca_btl_tcp: connection reset by peer\n";
  EXPECT_EQ(read(kOsu + warning + "32     2.50\n", {.ranks = 4}).rows.size(), 4u);
  EXPECT_EQ(read(kOsu + warning + "10     300.70\n", {.ranks = 4}).rows.size(), 3u);
}

TEST(OsuTable, LabelsOfLaunchersAreTakenOff) {
  for (const std::string label : {"0: ", "[1,0]<stdout>:", "[0] ", "(head, rank=0, pid=9) ",
                                  "2024-03-01T12:00:00Z ", "node1: ", "launcher-1  | "}) {
    std::string text;
    for (std::string_view rest = kOsu; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1))
      text += label + std::string(rest.substr(0, rest.find('\n') + 1));
    const CollectiveLog log = read(text, {.ranks = 4});
    ASSERT_EQ(log.rows.size(), 3u) << label;
    EXPECT_DOUBLE_EQ(log.rows[2].seconds, 2.31e-6) << label;
  }
}

TEST(PlainTable, BytesAndSecondsNeedNoHeader) {
  const CollectiveLog log = read("1048576,0.001\n4194304,0.0035\n", {.ranks = 4});
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[1].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[1].ranks, 4);
  EXPECT_EQ(log.rows[1].bytes, 4194304);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 0.0035);
  EXPECT_THAT(log.notes,
              Contains(HasSubstr("does not name its collective, so it is taken as all-reduce")));
}

TEST(PlainTable, RanksAndCollectiveMayFollow) {
  const CollectiveLog log = read("1048576,0.001,2\n1048576,0.0015,4\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].ranks, 2);
  EXPECT_EQ(log.rows[1].ranks, 4);
  const CollectiveLog named = read("1000 0.001 2 all_gather\n1000 0.002 2 reduce-scatter\n");
  EXPECT_EQ(named.rows[0].collective, Collective::all_gather);
  EXPECT_EQ(named.rows[1].collective, Collective::reduce_scatter);
}

TEST(PlainTable, AHeaderGivesAnyOrderAndUnit) {
  const CollectiveLog log =
      read("collective;ranks;time_us;size(KiB)\nAllReduce;8;250.5;64\nbroadcast;8;100;64\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[0].bytes, 65536);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 250.5e-6);
  EXPECT_EQ(log.rows[1].collective, Collective::broadcast);
  EXPECT_EQ(log.rows[1].ranks, 8);
}

TEST(PlainTable, TheTypeIsAColumnOrAWordOfTheFilesName) {
  const auto type_in = [](const char* text, const char* name) {
    const CollectiveSample row = read(text, {}, name).rows.front();
    return std::pair{row.dtype, row.says_type};
  };
  const char* const plain = "1024,0.001,2,all_reduce\n2048,0.002,2,all_reduce\n";
  EXPECT_EQ(type_in("1024,0.001,2,all_reduce,f16\n", "t.csv"), std::pair(DType::f16, true));
  EXPECT_EQ(type_in("bytes,seconds,ranks,collective,type\n1024,0.001,2,all_reduce,bf16\n", "t.csv"),
            std::pair(DType::bf16, true));
  EXPECT_EQ(type_in(plain, "t_all_reduce_f16_10G_2.csv"), std::pair(DType::f16, true));
  EXPECT_EQ(type_in(plain, "table_10G.csv"), std::pair(DType::f32, false));
}

TEST(PlainTable, TheFileNameMayNameTheCollective) {
  const CollectiveLog log = read("1000,0.1\n", {.ranks = 2}, "my_allgather.csv");
  EXPECT_EQ(log.rows[0].collective, Collective::all_gather);
}

TEST(PlainTable, TimesWithoutAUnitAreRefused) {
  EXPECT_THAT(refusal("size,latency\n1000,5\n"),
              HasSubstr("bench.log:1: expected times with their unit"));
}

TEST(PlainTable, UnreadableRowsAreCounted) {
  const CollectiveLog log =
      read("bytes,seconds\n1000,0.1\nabc,0.2\n2000\n3000,-1\n4000,0.4\n", {.ranks = 2});
  EXPECT_EQ(log.rows.size(), 2u);
  EXPECT_THAT(log.notes, Contains(HasSubstr("3 rows could not be read")));
}

// 1 MiB in 20 us is 52.43 GB/s; times 1.75, that of 8 ranks, 91.75.
TEST(PlainTable, RemarksAndUnreadableRowsMayComeFirst) {
  for (const char* first : {"# mpirun -n 4, eth0\n", "\n# two\n# remarks\n", "0,0.0001,4\n",
                            "1024,nan,4\n", "1024,0,4\n", "# bytes,seconds,ranks\n"}) {
    const CollectiveLog log = read(first + std::string("1048576,0.001,4\n4194304,0.0035,4\n"));
    ASSERT_EQ(log.rows.size(), 2u) << first;
    EXPECT_EQ(log.rows[1].bytes, 4194304) << first;
    EXPECT_EQ(log.rows[1].ranks, 4) << first;
  }
  EXPECT_THAT(refusal("three words here\n1048576,0.001,4\n"), HasSubstr("none of their headers"));
}

TEST(NcclTestsCsv, ReadsTheTextsColumnsWithCommas) {
  const CollectiveLog log = read(
      "size,count,type,redop,root,oop-time,oop-algbw,oop-busbw,oop-error,ip-time,ip-algbw,ip-busbw,"
      "ip-error\n1048576,262144,float,sum,-1,20.00,52.43,91.75,0,21.00,49.93,87.38,0\n");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].collective, Collective::all_reduce);
  EXPECT_EQ(log.rows[0].ranks, 8);
  EXPECT_DOUBLE_EQ(log.rows[0].seconds, 20e-6);
  EXPECT_TRUE(log.rows[1].in_place);
  EXPECT_DOUBLE_EQ(log.rows[1].seconds, 21e-6);
}

TEST(NcclTestsCsv, ReadsWhatRcclTestsWrites) {
  const CollectiveLog log = read(
      "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,algbw,"
      "busbw,#wrong\n0,AllReduce,2,8,4,1,1048576,float,sum,0,20.00,52.43,91.75,0\n"
      "0,AllReduce,2,8,4,1,1048576,float,sum,1,21.00,49.93,87.38,0\n"
      "0,AllGather,2,8,4,1,1048576,float,none,0,20.00,52.43,45.88,0\n");
  ASSERT_EQ(log.rows.size(), 3u);
  int in_place = 0;
  for (const CollectiveSample& row : log.rows) {
    EXPECT_EQ(row.ranks, 8);
    EXPECT_EQ(row.ranks_per_node, 4);
    in_place += row.in_place;
    EXPECT_DOUBLE_EQ(row.seconds, row.in_place ? 21e-6 : 20e-6);
  }
  EXPECT_EQ(in_place, 1);
}

TEST(NcclTestsCsv, RatiosThatContradictTheNamedCollectiveAreNotBelieved) {
  // 1.75 is no all-gather's.
  const CollectiveLog log = read(
      "collective,ranks,size,type,time,algbw,busbw\nAllGather,8,1048576,float,20.00,52.43,91.75\n");
  EXPECT_EQ(log.rows.at(0).collective, Collective::all_reduce);
  EXPECT_THAT(log.notes, Contains(HasSubstr("named all_gather_perf, its bandwidths are those of "
                                            "all_reduce_perf")));
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

TEST(NcclTestsCsv, DigitsThatWereCutAreNoContradiction) {
  // 3.749 GB/s cut to 3.74 and 5.6235 to 5.62: ratios of 1.4987 to 1.5040, where 1.4960 was.
  const CollectiveLog log = read(
      "size,count,type,redop,time(us),algbw,busbw\n1000000,250000,float,sum,266.73,3.74,5.62\n"
      "4000000,1000000,float,sum,400.00,10.00,14.99\n");
  EXPECT_EQ(log.rows.at(0).ranks, 4);
}

/// Every cut of a table gives rows of the table, or a refusal.
TEST(PlainTable, CutTablesGiveTheirOwnRowsOrARefusal) {
  const std::string text =
      "bytes,seconds,ranks,collective\n1048576,0.00125,4,all-reduce\n4194304,0.0045,4,all-reduce\n"
      "16777216,0.0175,4,all-reduce\n";
  const CollectiveLog whole = read(text);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    try {
      for (const CollectiveSample& row : read(text.substr(0, cut)).rows) {
        const auto same = [&row](const CollectiveSample& w) {
          return w.bytes == row.bytes && w.seconds == row.seconds && w.ranks == row.ranks &&
                 w.collective == row.collective;
        };
        EXPECT_TRUE(std::any_of(whole.rows.begin(), whole.rows.end(), same)) << cut;
      }
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace linerate::bench_logs
