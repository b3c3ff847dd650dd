// Random plans over random groups: ways of simulating that have to agree. The rules themselves are
// those of the runner (tests/agreement).
#include <gmock/gmock.h>

#include <array>

#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulator.hpp"
#include "sim/random_plan.hpp"
#include "sim/task_trace.hpp"

namespace linerate::sim {
namespace {

using support::kRanks;
using support::kSteps;
using support::Random;
using support::random_cluster;
using support::random_plan;
using support::trace_tasks;

// Ranks that are alike need no graph of all steps and no events: the same sums, in the same order.
// Only broadcasts add up in another order.
TEST(RandomPlans, StepsOneByOneAreTheirGraph) {
  std::size_t crossing = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    doc::Plan plan = random_plan(random);
    plan.groups.resize(1);
    for (doc::TaskGraph& graph : plan.variants)
      for (doc::Task& task : graph.tasks) task.group = doc::kWhole;
    doc::Cluster cluster = random_cluster(random);
    cluster.rank_speeds.clear();
    if (random.below(2)) cluster.start_delay_s = 0.3 * random.unit();
    const cost::CostModel model(cluster);
    Prices prices(model, plan.ranks);
    Unrolled one_by_one, joined;
    lay_out_steps(plan, 0, kSteps, one_by_one);
    unroll(plan, 0, kSteps, joined);
    TaskTimes times, expected;
    EXPECT_DOUBLE_EQ(run_steps(one_by_one, prices, times),
                     run_fluid(joined.graph(), prices, classes_of(plan, joined.graph(), cluster),
                               joined.begins, {}, expected))
        << "seed " << seed;
    ASSERT_TRUE(one_by_one.joined.tasks.empty());
    ASSERT_THAT(times.start, ::testing::Pointwise(::testing::DoubleEq(), expected.start)) << seed;
    ASSERT_THAT(times.end, ::testing::Pointwise(::testing::DoubleEq(), expected.end)) << seed;
    std::vector<double> without = times.end;
    for (doc::TaskGraph& graph : plan.variants) graph.next_step.clear();
    run_steps(one_by_one, prices, times);
    crossing += times.end != without;
  }
  EXPECT_GT(crossing, 500u);  // edges between steps held something back
}

TEST(RandomPlans, ClassesUnderContentionAreTheirRanks) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const doc::Plan plan = random_plan(random);
    doc::Cluster cluster = random_cluster(random);
    cluster.contention = doc::Contention{1.3, 1.7};
    if (random.below(2)) cluster.start_delay_s = 0.3 * random.unit();
    const auto classes = trace_tasks(plan, cost::CostModel(cluster), kSteps);
    // A factor of its own, too small to notice, makes each rank a class.
    std::array<bool, kRanks> has_speed{};
    for (doc::RankSpeed& s : cluster.rank_speeds) {
      s.compute_factor *= 1 + 1e-14 * (s.rank + 1);
      has_speed[to_index(s.rank)] = true;
    }
    for (int r = 0; r < kRanks; ++r)
      if (!has_speed[to_index(r)]) cluster.rank_speeds.push_back({r, 1 + 1e-14 * (r + 1), 0});
    const auto ranks = trace_tasks(plan, cost::CostModel(cluster), kSteps);
    ASSERT_EQ(classes.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ASSERT_NEAR(classes[i].start_s, ranks[i].start_s, 1e-9) << "seed " << seed;
      ASSERT_NEAR(classes[i].end_s, ranks[i].end_s, 1e-9) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace linerate::sim
