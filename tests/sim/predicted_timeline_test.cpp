#include "linerate/sim/simulate.hpp"

#include <gmock/gmock.h>

#include "linerate/plan/planner.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using doc::TaskKind;
using ::testing::ElementsAre;

doc::Workload two_layers() {
  doc::Workload w = support::workload_at({3, 4, 10}, {4, 4, 8});
  w.layers = {{"a", "linear", 2.0, {}, 0}, {"b", "linear", 3.0, {}, 0}};
  w.gradients[0].layer = w.gradients[1].layer = 1;
  w.gradients[2].layer = 0;
  w.forward_s = 5;
  return w;
}

std::vector<doc::Event> of_kind(const doc::Timeline& t, TaskKind kind) {
  std::vector<doc::Event> found;
  for (const doc::Event& e : t.events)
    if (e.kind == kind && e.rank == 0) found.push_back(e);
  return found;
}

doc::Timeline timeline(const char* strategy) {
  const doc::Cluster c = support::two_rank_cluster(1, 0.25);
  const doc::Workload w = two_layers();
  return predicted_timeline(plan::make_plan(w, c, doc::parse_strategy(strategy), 2), w,
                            cost::CostModel(c));
}

TEST(PredictedTimeline, OneBackwardEventPerLayerOverItsOwnParameters) {
  const doc::Timeline t = timeline("ddp(first=8B, bucket=8B)");
  const auto backward = of_kind(t, TaskKind::backward);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(t.names[static_cast<std::size_t>(backward[0].name)], "b");
  EXPECT_THAT(t.parameter_sets[static_cast<std::size_t>(backward[0].set)], ElementsAre(0, 1));
  EXPECT_EQ(backward[0].start_ns, 5'000'000'000);
  EXPECT_EQ(backward[0].end_ns, 9'000'000'000);
}

TEST(PredictedTimeline, ExchangeStatesReadyStartAndBytes) {
  // Buckets {0, 1} ready at 5 + 4, in transfer 9 .. 12, and {2} ready at 15.
  const auto exchanges = of_kind(timeline("ddp(first=8B, bucket=8B)"), TaskKind::all_reduce);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0].ready_ns, 9'000'000'000);
  EXPECT_EQ(exchanges[0].end_ns, 12'000'000'000);
  EXPECT_EQ(exchanges[0].bytes, 8);
  EXPECT_EQ(exchanges[1].start_ns, 15'000'000'000);
}

TEST(PredictedTimeline, ExchangeIsNamedByItsTitle) {
  const doc::Timeline t = timeline("ddp(first=8B, bucket=8B)");
  const auto exchanges = of_kind(t, TaskKind::all_reduce);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(t.names[static_cast<std::size_t>(exchanges[0].name)], "all-reduce bucket 0");
  EXPECT_THAT(t.parameter_sets[static_cast<std::size_t>(exchanges[0].set)], ElementsAre(0, 1));
  EXPECT_EQ(t.names[static_cast<std::size_t>(exchanges[1].name)], "all-reduce bucket 1");
}

TEST(PredictedTimeline, EveryRankHasItsEventsAndSteps) {
  const doc::Timeline t = timeline("ddp");
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.mode, "predicted");
  EXPECT_DOUBLE_EQ(t.one_rank_step_s.value(), 15);
}

TEST(PredictedTimeline, AnEarlyRanksExchangeStartsWhenItsOwnGradientIsReady) {
  // Rank 1 computes half as fast: both exchange 3 s from 20 on, rank 0 has waited since 10.
  doc::Plan plan = support::empty_plan(2);
  doc::TaskGraph& graph = plan.variants.front();
  graph.add(support::exchange(8), graph.add(support::compute(10)));
  doc::Cluster c = support::two_rank_cluster(1, 0.25);
  c.rank_speeds = {{1, 2, 0}};
  const doc::Timeline t = predicted_timeline(plan, two_layers(), cost::CostModel(c));
  ASSERT_EQ(t.events.size(), 4u);
  EXPECT_EQ(t.events[1].ready_ns, 10'000'000'000);
  EXPECT_EQ(t.events[1].start_ns, 10'000'000'000);
  EXPECT_EQ(t.events[3].start_ns, 20'000'000'000);
  EXPECT_EQ(t.events[1].end_ns, 23'000'000'000);
  EXPECT_EQ(t.events[3].end_ns, 23'000'000'000);
}

TEST(PredictedTimeline, ATaskOfOneRankIsInItsEventsAlone) {
  doc::Plan plan = support::empty_plan(2);
  doc::TaskGraph& graph = plan.variants.front();
  graph.add(support::compute(1));
  graph.add(support::work(doc::Resource::host, 2, plan.group({"rank 1", {{1}}})));
  const doc::Timeline t =
      predicted_timeline(plan, two_layers(), cost::CostModel(support::two_rank_cluster(1, 0.25)));
  ASSERT_EQ(t.events.size(), 3u);
  EXPECT_EQ(t.events[2].rank, 1);
  EXPECT_EQ(t.events[2].kind, TaskKind::host);
}

TEST(PredictedTimeline, SameBytesForTheSameInput) {
  for (const char* strategy : {"ddp", "dear", "optimal"})
    EXPECT_EQ(doc::to_json(timeline(strategy)), doc::to_json(timeline(strategy)));
}

TEST(PredictedTimeline, AStepThatOverlapsTheOneBeforeLastsOnePeriod) {
  // The next forward waits for its all-gathers: that is part of its step, as in sim::simulate.
  const doc::Cluster c = support::two_rank_cluster(1, 0.25);
  const doc::Workload w = two_layers();
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("dear(layers=1)"), 2);
  const doc::Timeline t = predicted_timeline(plan, w, cost::CostModel(c));
  ASSERT_EQ(t.steps.size(), 2u);
  const double step_s = simulate(plan, cost::CostModel(c)).step_s;
  EXPECT_GT(step_s, 15);
  EXPECT_NEAR(t.steps[0].seconds(), step_s, 1e-9);
  EXPECT_EQ(t.steps[0].start_ns, 0);
}

TEST(PredictedTimeline, SaysWhetherCommunicationSlowsComputation) {
  EXPECT_EQ(timeline("ddp").computation_slowed, false);
  doc::Cluster c = support::two_rank_cluster(1, 0.25);
  c.contention = doc::Contention{1.5, 1};
  const doc::Workload w = two_layers();
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("ddp"), 2);
  EXPECT_EQ(predicted_timeline(plan, w, cost::CostModel(c)).computation_slowed, true);
}

}  // namespace
}  // namespace linerate::sim
