// Files of measured times become a Cluster: several rank counts together, hosts, line rates,
// barriers, 16-bit sums, traces.
#include "linerate/calibrate/from_logs.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include "bench_logs/printed_log.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/calibrate/from_traces.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/cost/cost_model.hpp"
#include "support/says.hpp"

namespace linerate::calibrate {
namespace {

std::filesystem::path file_of(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  write_file_atomically(path, text);
  return path;
}

/// Of two ranks.
doc::Cluster calibrated(const std::string& name, const std::string& text,
                        const FitOptions& options = {}) {
  return calibrate_from_logs({{file_of(name, text), {.ranks = 2}}}, options);
}

std::string table_of(double (*seconds)(double), int from, int to) {
  std::string text;
  for (int k = from; k <= to; ++k)
    text += fmt::format("{},{:.9g}\n", 1ll << k, seconds(static_cast<double>(1ll << k)));
  return text;
}

double all_reduce_s(const doc::Cluster& c, std::int64_t bytes, int ranks, DType dtype = DType::f32,
                    const cost::CostOptions& options = {}) {
  return cost::CostModel(c, options)
      .collective(Collective::all_reduce, bytes, ranks, dtype)
      .seconds;
}

double two_ranks(double s) { return 20e-6 + s / 1e9; }  // 2(n-1)/n = 1
double four_ranks(double s) { return 3 * 20e-6 + 1.5 * s / 1e9; }

TEST(FromLogs, TablesOfSeveralRankCountsJoin) {
  const doc::Cluster c =
      calibrate_from_logs({{file_of("two.csv", table_of(two_ranks, 14, 24)), {.ranks = 2}},
                           {file_of("four.csv", table_of(four_ranks, 14, 24)), {.ranks = 4}}},
                          {});
  ASSERT_EQ(c.collectives.size(), 2u);
  EXPECT_EQ(c.ranks, 4);
  // Both follow one ring's law, so three ranks do: 2 * 20 us + 4/3 S / (1 GB/s).
  EXPECT_NEAR(all_reduce_s(c, 1 << 20, 3), 40e-6 + 4.0 / 3 * 1048576e-9, 1e-6);
}

// By a column of the table or a word of its file's name; f32 and the other stay apart.
TEST(FromLogs, TablesOf16BitPriceTheirOwnType) {
  const auto typed = [](const char* type) {
    std::string text = "bytes,seconds,ranks,collective,type\n";
    for (int k = 14; k <= 24; ++k)
      text += fmt::format("{},{:.9g},2,all_reduce,{}\n", 1ll << k,
                          2 * two_ranks(static_cast<double>(1ll << k)), type);
    return text;
  };
  const auto slower = [](double s) { return 2 * two_ranks(s); };
  const auto full = file_of("t_all_reduce_f32_2.csv", table_of(two_ranks, 14, 24));
  for (const auto& [half, dtype] :
       {std::pair{file_of("a_typed.csv", typed("bf16")), DType::bf16},
        std::pair{file_of("b_typed.csv", typed("bfloat16")), DType::bf16},
        std::pair{file_of("t_all_reduce_bf16_2.csv", table_of(slower, 14, 24)), DType::bf16},
        std::pair{file_of("c_typed.csv", typed("half")), DType::f16}}) {
    const doc::Cluster c =
        calibrate_from_logs({{full, {.ranks = 2}}, {half, {.ranks = 2}}}, FitOptions{});
    ASSERT_EQ(c.collectives.size(), 2u);
    EXPECT_NEAR(all_reduce_s(c, 1 << 20, 2, dtype) / slower(1 << 20), 1, 1e-3);
    EXPECT_NEAR(all_reduce_s(c, 1 << 20, 2) / two_ranks(1 << 20), 1, 1e-3);
    EXPECT_GT(c.half_sum_s_per_byte, 0);
  }
}

TEST(FromLogs, HostsOfALogSayWhereItsRanksSit) {
  using bench_logs::printed_log;
  const auto inside = file_of("inside.log", printed_log({.ranks = 8}).text());
  const doc::Cluster one = calibrate_from_logs({{inside, {}}}, {});
  EXPECT_EQ(one.ranks_per_node, 8);
  EXPECT_EQ(one.network.bandwidth_bytes_per_s, 0);
  ASSERT_TRUE(one.node);
  // 100 GB/s of algbw, times 14/8.
  EXPECT_NEAR(one.node->bandwidth_bytes_per_s, 175e9, 1e9);
  EXPECT_THROW(all_reduce_s(one, 1 << 20, 16), InputError);

  const auto across = file_of(
      "across.log", printed_log({.ranks = 4, .ranks_per_node = 1, .bytes_per_s = 10e9}).text());
  const doc::Cluster both = calibrate_from_logs({{inside, {}}, {across, {}}}, {});
  EXPECT_EQ(both.ranks_per_node, 8);
  EXPECT_EQ(both.ranks, 8);
  const double within = 20e-6 + (1 << 28) / 100e9, between = 20e-6 + (1 << 28) / 10e9;
  EXPECT_NEAR(all_reduce_s(both, 1 << 28, 8), within, 0.01 * within);
  EXPECT_NEAR(all_reduce_s(both, 1 << 28, 32), within + between, 0.01 * (within + between));
}

TEST(FromLogs, RanksPerNodeMayBeSaid) {
  const auto log = file_of("inside.log", bench_logs::printed_log({.ranks = 2}).text());
  const auto found = [&](int said) {
    return calibrate_from_logs({{log, {}}}, {.ranks_per_node = said}).ranks_per_node;
  };
  EXPECT_EQ(found(8), 8);
  EXPECT_THROW(found(1), InputError);  // not against the hosts of a log
}

TEST(FromLogs, RowsOfOneSizeThatAreFarApartAreSaid) {
  const auto notes_with = [](const std::string& row) {
    const std::string ring = "ring,1024,10,8\nring,4096,20,8\nring,16384,30,8\n";
    std::vector<std::string> notes;
    const auto file = file_of("rows.csv", "algo,bytes,time_us,ranks\n" + ring + row);
    static_cast<void>(calibrate_from_logs({{file, {}}}, {}, &notes));
    return notes;
  };
  EXPECT_THAT(notes_with("tree,1024,30,8\n"), says("1 of 3 sizes of all-reduce on 8 ranks"));
  EXPECT_THAT(notes_with("ring,1024,11,8\n"), testing::Not(says("apart")));
}

TEST(FromLogs, TheLineRateIsKept) {
  const doc::Cluster c =
      calibrated("two.csv", table_of(two_ranks, 14, 24), {.line_rate_bytes_per_s = 2e9});
  EXPECT_EQ(c.network.line_rate_bytes_per_s, 2e9);
  EXPECT_NEAR(c.network.bandwidth_bytes_per_s, 1e9, 1e6);
}

// Collectives get 92 % of what sockets are given: a table of 1 GB/s is of a line of 1.087.
TEST(FromLogs, TheLineIsAssumedIfNobodySaysIt) {
  const doc::Cluster c = calibrated("two.csv", table_of(two_ranks, 14, 24));
  EXPECT_TRUE(c.network.line_rate_assumed);
  EXPECT_NEAR(c.network.line_rate_bytes_per_s, c.network.bandwidth_bytes_per_s / 0.92, 1);
  // Asked for that line, nothing moves; half of it takes twice as long a byte.
  const auto seconds = [&](double rate) {
    return all_reduce_s(c, 1 << 24, 2, DType::f32, {.bandwidth = BytesPerSecond{rate}});
  };
  const double as_measured = all_reduce_s(c, 1 << 24, 2);
  EXPECT_NEAR(seconds(c.network.line_rate_bytes_per_s), as_measured, 1e-12);
  EXPECT_NEAR(seconds(c.network.line_rate_bytes_per_s / 2), 2 * as_measured, 0.02 * as_measured);
}

TEST(FromLogs, OneTimeThatIsOffDoesNotMoveTheGoodput) {
  // 1 GB/s, but 50 MB take half as long again. Least squares made 1.17 GB/s of it, the slopes
  // between the largest four 1.06.
  const doc::Cluster c =
      calibrated("off.csv",
                 "bytes,seconds\n1000000,0.001\n10000000,0.01\n50000000,0.075\n70000000,0.07\n"
                 "130000000,0.13\n260000000,0.26\n");
  EXPECT_NEAR(c.network.bandwidth_bytes_per_s, 1e9, 0.01e9);
}

TEST(FromLogs, ABarrierIsOneTime) {
  const auto log =
      file_of("barrier.log", "# OSU MPI Barrier Latency Test v7.2\n# Avg Latency(us)\n   12.50\n");
  const doc::Cluster c = calibrate_from_logs({{log, {.ranks = 4}}}, {});
  const cost::Estimate e = cost::CostModel(c).collective(Collective::barrier, 0, 4);
  EXPECT_DOUBLE_EQ(e.seconds, 12.5e-6);
  EXPECT_FALSE(e.extrapolated);
}

TEST(FromLogs, SlowerSumsOf16BitAreSeenWhereBothTypesWereMeasured) {
  // On 2 ranks half of the array is added: 1 ns a byte more is half a nanosecond a byte of it.
  std::string text = "bytes,seconds,dtype\n";
  for (int k = 14; k <= 24; ++k) {
    const auto s = static_cast<double>(1ll << k);
    text += fmt::format("{},{:.9g},float\n{},{:.9g},half\n", s, two_ranks(s), s,
                        two_ranks(s) + 0.5e-9 * s);
  }
  EXPECT_NEAR(calibrated("types.csv", text).half_sum_s_per_byte, 1e-9, 1e-11);
}

/// All-reduces of one job on two ranks: `late_ns` after the first rank the second one joins.
trace::Job job_of(std::initializer_list<std::pair<std::int64_t, std::int64_t>> bytes_and_ns,
                  std::int64_t late_ns, int ranks_there) {
  trace::Job job;
  job.world_size = 2;
  job.groups = {"0"};
  for (int r = 0; r < ranks_there; ++r) {
    trace::RankActivity& rank = job.ranks.emplace_back();
    rank.rank = r;
    std::int64_t at = 0;
    for (const auto& [bytes, ns] : bytes_and_ns) {
      trace::Communication& c = rank.communications.emplace_back();
      c.span = {at + (r == 0 ? 0 : late_ns), at + late_ns + ns};
      c.op = trace::CommOp::all_reduce;
      c.group = 0, c.group_size = 2, c.bytes = bytes, c.sequence = at;
      at += late_ns + ns + 1000;
    }
  }
  return job;
}

TEST(FromTraces, TransfersCountFromTheLastRanksArrival) {
  std::vector<std::string> notes;
  const auto tables = tables_from_trace(
      job_of({{1 << 20, 1'000'000}, {1 << 22, 4'000'000}}, 300'000, 2), "job", notes);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].ranks, 2);
  ASSERT_EQ(tables[0].samples.size(), 2u);
  EXPECT_DOUBLE_EQ(tables[0].samples[0].seconds, 1e-3);
  EXPECT_DOUBLE_EQ(tables[0].samples[1].seconds, 4e-3);
  EXPECT_NEAR(all_reduce_s(fit_cluster(tables, {.fewest_sizes = 1}), 1 << 21, 2), 2e-3, 1e-5);
}

TEST(FromTraces, OneRankAloneStandsWithItsLeastDurations) {
  std::vector<std::string> notes;
  const auto tables =
      tables_from_trace(job_of({{1 << 20, 1'500'000}, {1 << 20, 1'000'000}}, 0, 1), "job", notes);
  ASSERT_EQ(tables.at(0).samples.size(), 1u);
  EXPECT_DOUBLE_EQ(tables[0].samples[0].seconds, 1e-3);
  EXPECT_THAT(notes, says("ranks are missing"));
  // Without a size of a collective there is none.
  EXPECT_THROW(tables_from_trace(job_of({{-1, 1000}}, 0, 2), "job", notes), InputError);
}

TEST(HostProbe, RanksOfOneMachineCountItsCoresOnce) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    EXPECT_EQ(probe_cores(communicator),
              static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  });
}

TEST(HostProbe, HostNamesOfOneMachineDoNotMultiplyItsCores) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    const std::string name = "rank" + std::to_string(communicator.rank());
    // Of this thread alone.
    const bool renamed = unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
    if (!renamed && communicator.rank() == 0)
      GTEST_LOG_(INFO) << "not allowed to rename a host: one name for both";
    EXPECT_EQ(probe_cores(communicator),
              static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  });
}

TEST(HostProbe, EveryRankGetsTheSameCostOf16BitSums) {
  std::vector<double> of_rank(2);
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    of_rank[static_cast<std::size_t>(communicator.rank())] =
        probe_half_sum(communicator, {.size = KiB(64), .budget = Duration{0.01}});
  });
  EXPECT_EQ(of_rank[0], of_rank[1]);
  EXPECT_GE(of_rank[0], 0);
}

}  // namespace
}  // namespace linerate::calibrate
