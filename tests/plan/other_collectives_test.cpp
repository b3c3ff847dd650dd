// What a Workload sends besides gradients stands in the Plans of every strategy, and the
// computation waits for it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/doc/plan_index.hpp"
#include "linerate/plan/exchange.hpp"
#include "plan/planned.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using doc::StepPlace;
using testing::ElementsAre;

constexpr double kLatency = 1e-4;  // of a message; bytes cost nothing

/// Gradients 10 ms apart, each of which is sent before the next place is reached.
doc::Workload without_others() {
  doc::Workload w = support::workload_of({4096, 4096, 4096}, 0.01);
  w.forward_s = 0.02;
  w.update_s = 0.005;
  return w;
}

/// A SyncBatchNorm in forward and backward, and ZeRO's gather of parameters.
doc::Workload with_others() {
  doc::Workload w = without_others();
  w.other_collectives = {
      {.collective = Collective::all_gather,
       .bytes = 2056,
       .per_rank = true,
       .place = StepPlace::forward,
       .at_s = 0.015},
      {.bytes = 2048, .place = StepPlace::backward, .at_s = 0.015},
      {.collective = Collective::all_gather, .bytes = 49152, .place = StepPlace::update}};
  return w;
}

doc::Cluster latency_alone() { return support::two_rank_cluster(2 * kLatency, 1e-25); }

doc::Plan plan_for(const std::string& strategy, const doc::Workload& w, int ranks = 2) {
  return support::planned(strategy, w, latency_alone(), ranks, {.first_step = false});
}

double step_s_of(const doc::Plan& plan) { return support::step_s(plan, latency_alone()); }

std::vector<std::string> others_of(const doc::Plan& plan) {
  const doc::TaskGraph& graph = plan.variants.back();
  std::vector<std::string> all;
  for (const doc::Task& t : support::collectives_of(graph))
    if (support::payload_of(graph, t).content == doc::Content::other)
      all.push_back(fmt::format("{} {}", name_of(t.kind), t.bytes));
  return all;
}

/// Of two ranks an all-gather takes one message step and an all-reduce two (ring, Thakur et al.
/// 2005), and nothing hides any: 1 + 2 + 1.
TEST(OtherCollectives, CostWhatTheyTakeUnderEveryStrategy) {
  for (const auto& line : exchanges().lines()) {
    const doc::Plan without = plan_for(line.name, without_others());
    const doc::Plan with = plan_for(line.name, with_others());
    EXPECT_THAT(others_of(without), testing::IsEmpty()) << line.name;
    EXPECT_EQ(others_of(with).size(), 3u) << line.name;
    const double more_s = step_s_of(with) - step_s_of(without);
    EXPECT_NEAR(more_s, 4 * kLatency, 1e-9) << line.name;
  }
}

TEST(OtherCollectives, StandWhereTheComputationReachesThem) {
  const doc::Plan plan = plan_for("wfbp", with_others());
  std::vector<std::string> lane;
  const doc::TaskGraph& graph = plan.variants.back();
  for (const doc::Task& t : graph.tasks)
    if (t.resource != doc::Resource::host)
      lane.push_back(fmt::format("{} {:g}", doc::title_of(plan, graph, t), 1e3 * t.seconds));
  EXPECT_THAT(lane, ElementsAre("forward 15", "all-gather other 0", "forward 5", "backward p2 10",
                                "all-reduce bucket 0 0", "backward 5", "all-reduce other 0",
                                "backward p1 5", "all-reduce bucket 1 0", "backward p0 10",
                                "all-reduce bucket 2 0", "update buckets 0-2 5",
                                "all-gather other 0", "host 0"));
}

TEST(OtherCollectives, OfEachRankGrowWithTheRanksOfTheirGroup) {
  doc::Workload w = with_others();
  EXPECT_THAT(others_of(plan_for("bulk", w, 4)),
              ElementsAre("all-gather 8224", "all-reduce 2048", "all-gather 49152"));
  for (doc::OtherCollective& o : w.other_collectives) o.group = 2;
  EXPECT_THAT(others_of(plan_for("bulk", w, 5)),
              ElementsAre("all-gather 4112", "all-reduce 2048", "all-gather 49152"));
  const doc::Plan plan = plan_for("bulk", w, 5);
  EXPECT_THAT(plan.groups.back().parts,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));  // rank 4 is by itself
}

TEST(OtherCollectives, OnceInSeveralStepsAreInThoseStepsAlone) {
  doc::Workload w = with_others();
  w.other_collectives[1].every = 2;
  w.other_collectives[2].every = 3;
  const doc::Plan plan = plan_for("bulk", w);
  std::vector<std::string> names;
  for (const std::int32_t v : plan.cycle) names.push_back(plan.variants[to_index(v)].name);
  EXPECT_THAT(names, ElementsAre("steady", "steady.every-2", "steady.every-3", "steady.every-2",
                                 "steady", "steady.every-2-3"));
  // 1 in each step, 2 in every second, 1 in every third.
  EXPECT_NEAR(step_s_of(plan) - step_s_of(plan_for("bulk", without_others())),
              (1 + 2. / 2 + 1. / 3) * kLatency, 1e-9);
  // Steps of K-FAC that invert and others, each with its kinds.
  w = with_others();
  w.other_collectives[2].every = 4;
  w.layers = {{"l", "linear"}};
  w.blocks = {{.layer = 0, .a = 63, .g = 64}};
  for (doc::Gradient& g : w.gradients) g.layer = 0;
  const doc::Plan kfac = plan_for("kfac(spd, factors=2, inverses=2)", w);
  EXPECT_EQ(kfac.variants[to_index(kfac.cycle.back())].name, "steady.every-4.stale");
  EXPECT_EQ(kfac.cycle.size(), 4u);
}

TEST(OtherCollectives, AreNotOfATrainingPlan) {
  EXPECT_THAT(
      others_of(support::planned("ddp", with_others(), latency_alone(), 2, support::training())),
      testing::IsEmpty());
}

}  // namespace
}  // namespace linerate::plan
