#include "linerate/sim/fluid.hpp"

#include <gmock/gmock.h>

#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/sweep.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

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
    const doc::Plan plan =
        plan::make_plan(w, c, doc::parse_strategy(strategy), 2, {.first_step = false});
    const doc::TaskGraph& graph = plan.variants.back();
    Prices prices(model, 2);
    TaskTimes by_sweep, by_events;
    const double end = sweep(graph, prices, by_sweep, true);
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
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("ddp(first=8B, bucket=8B)"), 2);
  EXPECT_DOUBLE_EQ(simulate(plan, cost::CostModel(c)).step_s, 14);
}

TEST(Fluid, CodingAndComputingSlowEachOther) {
  // Of 8 s of backward the first 4 run alone. Beside the rest the first gradient's 8 bytes are
  // encoded at 4 B/s, 2 s of work, both at half speed: until 8, when 2 s of backward are left,
  // which run alone until 10. Then the second gradient: 2 s, nothing travels as good as.
  const doc::Workload w = support::workload_at({4, 8}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(0, 1e-12);
  const auto strategy = doc::parse_strategy("ddp(first=8B, bucket=8B)+codec(ratio=2, encode=4B/s)");
  const auto step_s = [&] {
    return simulate(plan::make_plan(w, c, strategy, 2), cost::CostModel(c)).step_s;
  };
  EXPECT_NEAR(step_s(), 10, 1e-9);
  c.contention = doc::Contention{1, 1, 2};
  EXPECT_NEAR(step_s(), 12, 1e-9);
}

TEST(Fluid, OnlyTheOverlappedPartIsSlowed) {
  // Nothing overlaps under bulk: contention changes nothing.
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("bulk"), 2);
  const double alone = simulate(plan, cost::CostModel(c)).step_s;
  c.contention = doc::Contention{3, 5};
  EXPECT_DOUBLE_EQ(simulate(plan, cost::CostModel(c)).step_s, alone);
}

TEST(Fluid, MoreContentionNeverMakesAStepFaster) {
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
  for (const std::string& strategy : kStrategies) {
    double before = 0;
    for (const double factor : {1.0, 1.1, 1.5, 3.0}) {
      c.contention = doc::Contention{factor, factor};
      const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy(strategy), 2);
      const double step = simulate(plan, cost::CostModel(c)).step_s;
      EXPECT_GE(step, before * (1 - 1e-9)) << strategy << " at " << factor;
      before = step;
    }
  }
}

}  // namespace
}  // namespace linerate::sim
