// What is predicted of a Plan: its Timeline, its interval, and how much of it is exposed.
#include <gmock/gmock.h>

#include <cmath>

#include "linerate/plan/make_plan.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "plan/planned.hpp"
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

doc::Timeline timeline(const std::string& strategy,
                       const doc::Cluster& c = support::two_rank_cluster(1, 0.25)) {
  const doc::Workload w = two_layers();
  return predicted_timeline(support::planned(strategy, w, c), w, cost::CostModel(c));
}

TEST(PredictedTimeline, OneBackwardEventPerLayerOverItsOwnParameters) {
  const doc::Timeline t = timeline("ddp(first=8B, bucket=8B)");
  const auto backward = of_kind(t, TaskKind::backward);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(t.names[to_index(backward[0].name)], "b");
  EXPECT_THAT(t.parameter_sets[to_index(backward[0].set)], ElementsAre(0, 1));
  EXPECT_EQ(backward[0].start_ns, 5'000'000'000);
  EXPECT_EQ(backward[0].end_ns, 9'000'000'000);
}

TEST(PredictedTimeline, ExchangeStatesItsTitleReadyStartAndBytes) {
  // Buckets {0, 1} ready at 5 + 4, in transfer 9 .. 12, and {2} ready at 15.
  const doc::Timeline t = timeline("ddp(first=8B, bucket=8B)");
  const auto exchanges = of_kind(t, TaskKind::all_reduce);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0].ready_ns, 9'000'000'000);
  EXPECT_EQ(exchanges[0].end_ns, 12'000'000'000);
  EXPECT_EQ(exchanges[0].bytes, 8);
  EXPECT_EQ(exchanges[1].start_ns, 15'000'000'000);
  EXPECT_EQ(t.names[to_index(exchanges[0].name)], "all-reduce bucket 0");
  EXPECT_THAT(t.parameter_sets[to_index(exchanges[0].set)], ElementsAre(0, 1));
  EXPECT_EQ(t.names[to_index(exchanges[1].name)], "all-reduce bucket 1");
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

TEST(PredictedTimeline, SaysWhetherCommunicationSlowsComputation) {
  EXPECT_EQ(timeline("ddp").computation_slowed, false);
  doc::Cluster c = support::two_rank_cluster(1, 0.25);
  c.contention = doc::Contention{1.5, 1};
  EXPECT_EQ(timeline("ddp", c).computation_slowed, true);
}

/// A step of `ddp` on two ranks that computes 2 s and sends for 2 s, with 4 to 4.4 s by its prices.
struct OneStep {
  doc::Workload workload = support::workload_at({1, 2}, {8, 8});
  doc::Cluster cluster = support::two_rank_cluster(1e-4, 1e-9);
  SimResult result{
      .step_s = 4, .low_s = 4, .high_s = 4.4, .communication_s = 2, .exposed_communication_s = {}};

  doc::Plan plan() const {
    return plan::make_plan(workload, cluster, doc::parse_strategy("ddp"), 2);
  }
  double compute_s() const { return support::compute_s(plan()); }
  doc::Bounded step() const {
    Simulator simulator;
    return predicted_step(result, plan(), workload, cost::CostModel(cluster), simulator).step_s;
  }
};

TEST(PredictedStep, ComputingOnProcessorsIsAsNoisyAsTheProbe) {
  OneStep c;
  c.cluster.noise_floor = 0.1;
  EXPECT_EQ(c.step().high, 4.4);  // computing on devices of its own
  c.cluster.contention = doc::Contention{1.2, 1};
  EXPECT_NEAR(*c.step().high, 4 + std::hypot(0.4, 0.1 * c.compute_s()), 1e-12);
  EXPECT_NEAR(*c.step().low, 4 - c.compute_s() / 11, 1e-12);
  c.result.low_s = c.result.high_s = std::nullopt;
  EXPECT_FALSE(c.step().has_interval());
}

TEST(PredictedStep, RanksThatShareCoresMayOverlapNothing) {
  OneStep c;
  c.result.step_s = 3.2, c.result.low_s = 3.1, c.result.high_s = 3.3;
  c.cluster.contention = doc::Contention{1.2, 1};
  c.cluster.cores = 2;
  EXPECT_EQ(c.step().high, 3.3);
  c.cluster.cores = 1;
  EXPECT_NEAR(*c.step().high, c.compute_s() + 2, 1e-12);
  EXPECT_GT(*c.step().high, 3.3);
}

/// A layer in front, the other one behind it, each 10 s of forward; gradients are of this one.
doc::Workload two_forwards(int layer_of_gradients) {
  doc::Workload w = support::workload_at({10}, {16});
  w.layers = {{"front", "embedding", 10.0, {}, 0}, {"back", "linear", 10.0, {}, 0}};
  w.gradients[0].layer = layer_of_gradients;
  w.forward_s = 20;
  return w;
}

TEST(ExposedCommunication, IsWhatOfTheStepNothingHides) {
  const doc::Workload two = support::workload_at({4, 10}, {8, 8}),
                      one = support::workload_at({4}, {8});
  const doc::Cluster plain = support::two_rank_cluster(1, 0.25),
                     late = support::two_rank_cluster(2, 0.125);
  doc::Cluster contended = support::two_rank_cluster(1, 0.125);
  contended.contention = doc::Contention{2, 2};
  struct Worked {
    const doc::Workload& workload;
    const doc::Cluster& cluster;
    const char* strategy;
    double step_s, exposed_s;
  };
  const doc::Workload front = two_forwards(0), back = two_forwards(1);
  for (const auto& [workload, cluster, strategy, expected_s, exposed_s] :
       {// Backward 10 s. Exchanges of 3 s each: one hidden, one behind backward. In one piece: 5 s.
        Worked{two, plain, "ddp(first=8B, bucket=8B)", 10 + 3, 3},
        {two, plain, "bulk", 10 + 5, 5},
        // 4 s of backward, 2 s to encode, 2 s on the wire, 1 s to decode: coding is computation.
        {one, plain, "ddp+codec(ratio=2, encode=4B/s, decode=8B/s)", 9, 2},
        // As in Fluid.OnlyWhatOverlapsIsSlowed: of 14 s 2 of backward that took longer, which are
        // no communication, and 2 of the second exchange, alone.
        {two, contended, "ddp(first=8B, bucket=8B)", 14, 2},
        // One gradient of the layer behind, there at 10 s; 4 s for the all-reduce. Its halves of 2
        // s run in 10 .. 14, under the front layer's forward of the next step in 10 .. 20.
        {back, late, "ddp", 34, 4},
        {back, late, "dear", 30, 0},
        // A first layer that needs its weights at once waits for the whole exchange, at the step's
        // begin.
        {front, late, "dear", 34, 4}}) {
    SCOPED_TRACE(strategy);
    const doc::Plan plan = support::planned(strategy, workload, cluster);
    const cost::CostModel model(cluster);
    const SimResult both = Simulator().simulate_exposure(plan, model);
    EXPECT_DOUBLE_EQ(both.step_s, expected_s);
    EXPECT_EQ(both.step_s, simulate(plan, model).step_s);
    ASSERT_TRUE(both.exposed_communication_s);
    EXPECT_DOUBLE_EQ(*both.exposed_communication_s, exposed_s);
    EXPECT_EQ(both.exposed_communication_s, exposed_communication_s(plan, model));
  }
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

TEST(PredictedTimeline, AStepBeginsWhereTheOneBeforeItEnded) {
  doc::Workload w = support::workload_at({10}, {16});
  w.layers = {{"only", "linear", 20.0, {}, 0}};
  w.gradients[0].layer = 0;
  w.forward_s = 20;
  const doc::Cluster c = support::two_rank_cluster(2, 0.125);
  const doc::Timeline t = predicted_timeline(support::planned("dear", w, c), w, cost::CostModel(c));
  ASSERT_EQ(t.steps.size(), 2u);
  for (const doc::Step& s : t.steps) {
    EXPECT_EQ(s.start_ns, 0);
    EXPECT_DOUBLE_EQ(s.seconds(), support::step_s("dear", w, c));
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
