#include "linerate/explain/explanation.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "linerate/core/error.hpp"
#include "linerate/explain/program.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

constexpr const char* kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";

/// Two ranks, one step 0..1000: compute 0..400; rank 1 arrives `late` us later at an all-reduce
/// that moves data for 100 us.
std::vector<std::string> rank_events(int rank, double late, double clock, const std::string& more) {
  const double start = rank == 1 ? 400 + late : 400;
  return {step(5, clock, 1000), kernel("gemm", clock, 400),
          kernel(kAllReduce, clock + start, 500 + late - start,
                 collective("allreduce", 1 << 20, 2, more))};
}

TEST(MultiRank, SkewIsSplitFromTransferAndChargedToTheLateRank) {
  // Rank 0 waits 300 us and moves 100 us; rank 1's kernel lasts 100 us. Clocks differ by 5 ms.
  const Job job = job_of_ranks({trace_of(0, 2, rank_events(0, 300, 0, R"("Seq":7)")),
                                trace_of(1, 2, rank_events(1, 300, 5000, R"("Seq":7)"))});
  const Breakdown b = break_down(job);
  ASSERT_EQ(b.collectives.size(), 1u);
  const CollectiveRow& c = b.collectives[0];
  EXPECT_NEAR(*c.transfer_s, 100e-6, 1e-9);
  EXPECT_NEAR(*c.skew_s, 300e-6, 1e-9);
  EXPECT_EQ(c.last_rank, 1);
  // S = 4 MiB; busbw of two ranks = algbw * 2(2-1)/2.
  EXPECT_NEAR(*c.busbw_bytes_per_s, 4194304 / 100e-6, 1e3);
  EXPECT_EQ(b.ranks[1].clock_offset_ns, -5'000'000);
  EXPECT_NEAR(b.ranks[1].delay_per_step_s.value(), 300e-6, 1e-9);
  // Rank 1 in time: the step ends 300 us earlier, not the 150 us that its ranks wait on average; an
  // all-reduce that takes no time: 100 us. Of the step of 1000 us.
  const Verdict v = judge(b);
  EXPECT_EQ(v.finding, Finding::skew_bound);
  EXPECT_NEAR(share_for(v.gains, Remedy::no_stragglers).value(), 0.30, 1e-9);
  EXPECT_NEAR(share_for(v.gains, Remedy::infinitely_fast_network).value(), 0.10, 1e-9);
}

TEST(MultiRank, RanksThatCannotBeToldApartAreAnError) {
  const std::string a = trace_of(0, 2, rank_events(0, 0, 0, ""));
  for (const std::string& b : {a, "[" + kernel("gemm", 0, 1) + "]"})
    EXPECT_THROW(job_of_files({{"rank0.json", a}, {"trace_b.json", b}}), InputError);
}

TEST(Verdict, RulesApplyInOrder) {
  const auto finding = [](double idle, double exposed, double transfer, bool missing,
                          double loading = 0) {
    Breakdown b;
    b.has_steps = b.has_device = true;
    b.ranks_missing = missing;
    b.in_steps = {.window_s = 1,
                  .exposed_s = exposed,
                  .idle_s = idle,
                  .exposed_transfer_s = transfer,
                  .exposed_wait_s = exposed - transfer,
                  .loading_idle_s = loading};
    return judge(b).finding;
  };
  EXPECT_EQ(finding(0.6, 0.3, 0.3, false, 0.19), Finding::host_bound);
  EXPECT_EQ(finding(0.6, 0.3, 0.3, true, 0.21), Finding::input_bound);
  // A missing rank hides none of the first four.
  EXPECT_EQ(finding(0.6, 0.3, 0.3, true), Finding::host_bound);
  EXPECT_EQ(finding(0.1, 0.04, 0.04, true), Finding::compute_bound);
  EXPECT_EQ(finding(0.1, 0.3, 0.3, true), Finding::inconclusive);
  EXPECT_EQ(finding(0.1, 0.3, 0.15, false), Finding::network_bound);  // a tie goes to the network
  EXPECT_EQ(finding(0.1, 0.3, 0.1, false), Finding::skew_bound);
  EXPECT_EQ(judge({}).finding, Finding::inconclusive);
}

TEST(Recorded, DelaysAndTheLateRankAreRecoveredFromDdpOverGloo) {
  // tools/record-fixtures: of two ranks rank 1 sleeps 30 ms before backward; of four rank 2 sleeps
  // 20 ms, rank 1 10 ms. Both were recorded on two busy cores, whose scheduling adds or hides
  // several milliseconds.
  const Breakdown two = break_down(recorded_job("gloo2"));
  EXPECT_GT(two.ranks[1].times_last, two.ranks[0].times_last);
  EXPECT_NEAR(two.ranks[1].delay_per_step_s.value(), 0.030, 0.010);
  const Breakdown four = break_down(recorded_job("gloo4"));
  for (const int r : {0, 1, 3})
    EXPECT_GT(four.ranks[2].times_last, four.ranks[static_cast<std::size_t>(r)].times_last);
  EXPECT_NEAR(four.ranks[2].delay_per_step_s.value(), 0.020, 0.010);
  EXPECT_TRUE(two.buckets && two.buckets->matches_rule && four.buckets->matches_rule);
}

struct Golden {
  const char* file;
  double compute, communication, overlap, exposed;
  Finding finding;
};

TEST(Samples, BreakdownsOfOtherPeoplesTraces) {
  const std::filesystem::path folder = "../shared/data/kineto";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  // Unions of the kernels' intervals, computed independently with exact decimals; findings:
  // docs/explain.md.
  const Golden all[] = {
      {"alexnet_1gpu.json.gz", 0.010630, 0, 0, 0, Finding::inconclusive},
      {"nanosecond_world1.json.gz", 0.468153602, 0, 0, 0, Finding::compute_bound},
      {"no_rank_field.json.gz", 0, 0, 0, 0, Finding::inconclusive},
      {"rank0of128_filtered.json.gz", 0.210320, 0.396199, 0.059216, 0.336983, Finding::host_bound},
      {"rocm62_mi250.json.gz", 0.000110881, 0, 0, 0, Finding::host_bound},
      {"v100_rank3of8_2020.json.gz", 0.281336, 0.163535, 0.075614, 0.087921,
       Finding::inconclusive}};
  for (const Golden& g : all) {
    const Breakdown b = break_down(load_job({folder / g.file}));
    EXPECT_NEAR(b.whole.compute_s, g.compute, 1e-9) << g.file;
    EXPECT_NEAR(b.whole.communication_s, g.communication, 1e-9) << g.file;
    EXPECT_NEAR(b.whole.overlap_s, g.overlap, 1e-9) << g.file;
    EXPECT_NEAR(b.whole.exposed_s, g.exposed, 1e-9) << g.file;
    EXPECT_EQ(judge(b).finding, g.finding) << g.file;
  }
}

}  // namespace
}  // namespace linerate::trace
