#include "linerate/sim/simulator.hpp"

#include <gmock/gmock.h>

#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

struct Case {
  doc::Workload workload;
  doc::Cluster cluster;

  doc::Plan plan(const std::string& strategy) const {
    return plan::make_plan(workload, cluster, doc::parse_strategy(strategy), 2);
  }
  double exposed_s(const std::string& strategy) const {
    const doc::Plan p = plan(strategy);
    const cost::CostModel model(cluster);
    const double alone = exposed_communication_s(p, model);
    const SimResult both = Simulator().simulate_exposure(p, model);
    EXPECT_EQ(both.exposed_communication_s, alone);
    EXPECT_EQ(both.step_s, simulate(p, model).step_s);
    return alone;
  }
  double step_s(const std::string& strategy) const {
    return simulate(plan(strategy), cost::CostModel(cluster)).step_s;
  }
};

TEST(ExposedCommunication, IsWhatTheStepTakesBeyondOneRankWhereNothingElseDoes) {
  // Backward 10 s. Exchanges of 3 s each: one hidden, one behind backward. In one piece: 5 s.
  const Case c{support::workload_at({4, 10}, {8, 8}), support::two_rank_cluster(1, 0.25)};
  EXPECT_DOUBLE_EQ(c.exposed_s("ddp(first=8B, bucket=8B)"), 3);
  EXPECT_DOUBLE_EQ(c.exposed_s("bulk"), 5);
  EXPECT_DOUBLE_EQ(c.step_s("bulk"), 10 + 5);
}

TEST(ExposedCommunication, CodingIsComputation) {
  // 4 s of backward, 2 s to encode, 2 s on the wire, 1 s to decode: 9 s, of them 2 exposed.
  const Case c{support::workload_at({4}, {8}), support::two_rank_cluster(1, 0.25)};
  const std::string codec = "ddp+codec(ratio=2, encode=4B/s, decode=8B/s)";
  EXPECT_DOUBLE_EQ(c.step_s(codec), 9);
  EXPECT_DOUBLE_EQ(c.exposed_s(codec), 2);
}

TEST(ExposedCommunication, ComputationThatContentionSlowsIsNotCommunication) {
  // As Fluid.BothSlowDownWhileBothAreActive: 14 s, of them 2 of backward that took longer and 2 of
  // the second exchange, alone.
  Case c{support::workload_at({4, 10}, {8, 8}), support::two_rank_cluster(1, 0.125)};
  c.cluster.contention = doc::Contention{2, 2};
  EXPECT_DOUBLE_EQ(c.step_s("ddp(first=8B, bucket=8B)"), 14);
  EXPECT_DOUBLE_EQ(c.exposed_s("ddp(first=8B, bucket=8B)"), 2);
}

TEST(ExposedCommunication, WaitingForALateRankIsIt) {
  // Rank 1 takes 20 s, rank 0 waits from 10 on; the exchange takes 3 s: (13 + 3) / 2.
  doc::Plan plan = support::empty_plan(2);
  doc::TaskGraph& graph = plan.variants.front();
  const auto backward = graph.add(support::compute(10));
  graph.add(support::compute(0), graph.add(support::exchange(8), backward));
  doc::Cluster c = support::two_rank_cluster(1, 0.25);
  c.rank_speeds = {{1, 2, 0}};
  EXPECT_DOUBLE_EQ(exposed_communication_s(plan, cost::CostModel(c)), 8);
}

TEST(ExposedCommunication, NextStepsForwardHidesWhatCrossesTheBorder) {
  // Dear.HidesUnderForwardWhatPlainOverlapLeavesExposed.
  Case c{support::workload_at({10}, {16}), support::two_rank_cluster(2, 0.125)};
  c.workload.layers = {{"front", "embedding", 10.0, {}, 0}, {"back", "linear", 10.0, {}, 0}};
  c.workload.gradients[0].layer = 1;
  c.workload.forward_s = 20;
  EXPECT_DOUBLE_EQ(c.exposed_s("ddp"), 4);
  EXPECT_DOUBLE_EQ(c.exposed_s("dear"), 0);
  // A first layer that needs its weights at once waits for the whole exchange, at the step's begin.
  c.workload.gradients[0].layer = 0;
  EXPECT_DOUBLE_EQ(c.step_s("dear"), 34);
  EXPECT_DOUBLE_EQ(c.exposed_s("dear"), 4);
}

TEST(PredictedTimeline, AStepBeginsWhereTheOneBeforeItEnded) {
  Case c{support::workload_at({10}, {16}), support::two_rank_cluster(2, 0.125)};
  c.workload.layers = {{"only", "linear", 20.0, {}, 0}};
  c.workload.gradients[0].layer = 0;
  c.workload.forward_s = 20;
  const doc::Timeline t =
      predicted_timeline(c.plan("dear"), c.workload, cost::CostModel(c.cluster));
  ASSERT_EQ(t.steps.size(), 2u);
  for (const doc::Step& s : t.steps) {
    EXPECT_EQ(s.start_ns, 0);
    EXPECT_DOUBLE_EQ(s.seconds(), c.step_s("dear"));
  }
  // The exchange of the step before fills 0 .. 4 s of this one, in two halves.
  std::vector<std::pair<std::int64_t, std::int64_t>> earlier;
  for (const doc::Event& e : t.events)
    if (e.rank == 0 && e.step < 0) earlier.emplace_back(e.start_ns, e.end_ns);
  EXPECT_THAT(earlier, ::testing::ElementsAre(std::pair(0, 2'000'000'000),
                                              std::pair(2'000'000'000, 4'000'000'000)));
}

}  // namespace
}  // namespace linerate::sim
