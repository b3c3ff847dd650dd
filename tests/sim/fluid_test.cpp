#include "linerate/sim/simulator.hpp"

#include <gmock/gmock.h>

#include "plan/planned.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using support::planned;
using support::step_s;

const std::vector<std::string> kStrategies = {
    "bulk",
    "ddp",
    "horovod",
    "horovod(timer=clock)",
    "mg-wfbp",
    "optimal",
    "dear",
    "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s)",
    "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s, on=compute, exchange=gather)"};

TEST(Fluid, WithoutSlowdownEqualsTheSweepTaskForTask) {
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  w.forward_s = 0.03;
  w.update_s = 0.01;
  const doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
  const cost::CostModel model(c);
  for (const std::string& strategy : kStrategies) {
    const doc::Plan plan = planned(strategy, w, c, 2, {.first_step = false});
    const doc::TaskGraph& graph = plan.variants.back();
    Prices prices(model, 2);
    TaskTimes by_sweep, by_events;
    Unrolled step;
    lay_out_steps(plan, 0, 1, step);
    const double end = sweep(step, prices, by_sweep);
    const RankClasses classes = classes_of(plan, graph, c);
    const doc::Contention none;
    EXPECT_NEAR(run_fluid(graph, prices, classes, {}, none, by_events), end, 1e-12);
    for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
      EXPECT_NEAR(by_events.start[by_events.slot(i, 0)], by_sweep.start[i], 1e-12) << strategy;
      EXPECT_NEAR(by_events.end[by_events.slot(i, 0)], by_sweep.end[i], 1e-12) << strategy;
    }
  }
}

TEST(Fluid, BothSlowDownWhileBothAreActive) {
  // Compute 4 s, exchange of the first gradient (2 s) beside 6 s more of compute, both at half
  // speed: the exchange takes 4 s (4 .. 8), in which compute does 2 of its 6; the rest runs alone
  // until 12. Then the second exchange alone, 2 s: 14 instead of 12.
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  c.contention = doc::Contention{2, 2};
  EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, c), 14);
}

TEST(Fluid, CodingAndComputingSlowEachOther) {
  // Of 8 s of backward the first 4 run alone. Beside the rest the first gradient's 8 bytes are
  // encoded at 4 B/s, 2 s of work, both at half speed: until 8, when 2 s of backward are left,
  // which run alone until 10. Then the second gradient: 2 s, nothing travels as good as.
  const doc::Workload w = support::workload_at({4, 8}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(0, 1e-12);
  const char* const coded = "ddp(first=8B, bucket=8B)+codec(ratio=2, encode=4B/s)";
  EXPECT_NEAR(step_s(coded, w, c), 10, 1e-9);
  c.contention = doc::Contention{1, 1, 2};
  EXPECT_NEAR(step_s(coded, w, c), 12, 1e-9);
}

TEST(Fluid, OnlyTheOverlappedPartIsSlowed) {
  // Nothing overlaps under bulk: contention changes nothing.
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  const double alone = step_s("bulk", w, c);
  c.contention = doc::Contention{3, 5};
  EXPECT_DOUBLE_EQ(step_s("bulk", w, c), alone);
}

TEST(Fluid, AMessageSlowsOnlyTheComputationThatOverlapsIt) {
  // Two exchanges of 2 s. The first begins under the last 6 s of backward and takes half a second
  // of them; the second comes when nothing is left to compute: 14 - 2 + 0.5.
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  c.contention = doc::Contention{1, 1, 1, 0.5};
  EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, c), 12.5);
  const double bulk = step_s("bulk", w, c);
  c.contention.reset();
  EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, c), 12);
  EXPECT_DOUBLE_EQ(step_s("bulk", w, c), bulk);
}

TEST(Fluid, AMessageIsHeldUpOnlyWhileRanksCompute) {
  // Two exchanges of 2 s; backward lasts from 0 to 10 and its first gradient is there at 4. The
  // second exchange begins when nothing is left to compute, and so does bulk's only one.
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  const double bulk = step_s("bulk", w, c);
  for (const auto& [delay_s, expected] : {std::pair{0., 12.}, {4., 12.}, {5., 13.}, {9., 14.}}) {
    c.contention = doc::Contention{.message_delay_s = delay_s};
    EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, c), expected) << delay_s;
    EXPECT_DOUBLE_EQ(step_s("bulk", w, c), bulk);
  }
}

// The more messages and halves, the more processor: no strategy gets shorter, and one gets longer
// by at most what all of its messages take.
TEST(Fluid, NoMessageCostsMoreThanItTakes) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  for (const std::string& strategy : kStrategies) {
    doc::Cluster c = support::two_rank_cluster(1e-4, 1e-10);
    const doc::Plan plan = planned(strategy, w, c);
    double messages = 0;
    for (const doc::Task& task : plan.variants.back().tasks)
      messages += doc::is_communication(task.kind);
    const double free = step_s(plan, c);
    for (const auto& [taken_s, delay_s] : {std::pair{0., 1e-4}, {1e-4, 0.}}) {
      c.contention = doc::Contention{1, 1, 1, taken_s, delay_s};
      const double step = step_s(plan, c);
      EXPECT_GE(step, free * (1 - 1e-9)) << strategy;
      EXPECT_LE(step, free + messages * 1e-4 * (1 + 1e-9)) << strategy;
    }
    // What is measured twice and differs by half of it is known no better.
    c.noise_floor = 0.5, c.start_delay_s = 1e-4;
    const cost::CostModel model(c);
    const Prices low(model, 2, Bound::low), high(model, 2, Bound::high);
    EXPECT_DOUBLE_EQ(high.contention().message_s, 1.5e-4);
    EXPECT_DOUBLE_EQ(low.contention().message_s, 1e-4 / 1.5);
    doc::Task message;
    message.kind = doc::TaskKind::all_reduce;
    EXPECT_DOUBLE_EQ(high.start_delay_s(message), 1.5e-4);
    EXPECT_DOUBLE_EQ(low.start_delay_s(message), 1e-4 / 1.5);
  }
}

TEST(Fluid, MoreContentionNeverMakesAStepFaster) {
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
  for (const std::string& strategy : kStrategies) {
    double before = 0;
    for (const double factor : {1.0, 1.1, 1.5, 3.0}) {
      c.contention = doc::Contention{factor, factor};
      const double step = step_s(strategy, w, c);
      EXPECT_GE(step, before * (1 - 1e-9)) << strategy << " at " << factor;
      before = step;
    }
  }
}

}  // namespace
}  // namespace linerate::sim
