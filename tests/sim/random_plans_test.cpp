// Random plans over random groups, against the rules of a Plan written down rank by rank.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <tuple>

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
using support::TracedTask;

// Every rank for itself, task after task.
class Reference {
 public:
  Reference(const doc::Plan& plan, const doc::Cluster& cluster)
      : plan_(plan), cluster_(cluster), model_(cluster) {}

  std::map<std::tuple<int, int, std::uint32_t>, std::pair<double, double>> run() {
    for (int step = 0; step < kSteps; ++step) {
      for (const doc::RankSpeed& s : cluster_.rank_speeds) free_[to_index(s.rank)][0] += s.delay_s;
      const doc::TaskGraph& graph = plan_.variant_of_step(step);
      for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) run_task(step, graph, i);
    }
    return times_;
  }

 private:
  void run_task(int step, const doc::TaskGraph& graph, std::uint32_t i) {
    const doc::Task& task = graph.tasks[i];
    const doc::Group& group = plan_.group_of(task);
    std::map<std::int32_t, double> last;  // by part
    for (int r = 0; r < kRanks; ++r) {
      if (!group.holds(r)) continue;
      const double ready = arrival(r, step, graph, i) + delay(r, task);
      const double start = std::max(free(r, task), ready);
      times_[{r, step, i}] = {start, start + task.seconds * factor(r, task)};
      last[group.part_of(r)] = std::max(last[group.part_of(r)], start);
    }
    for (int r = 0; r < kRanks; ++r) {
      if (!group.holds(r)) continue;
      double& end = times_[{r, step, i}].second;
      if (doc::is_communication(task.kind)) end = last[group.part_of(r)] + price(task, r);
      free(r, task) = end;
    }
  }
  double arrival(int r, int step, const doc::TaskGraph& graph, std::uint32_t i) {
    double at = 0;
    for (const std::uint32_t p : graph.predecessors(i)) at = std::max(at, end(r, step, p));
    if (step == 0) return at;
    for (const doc::NextStepEdge& e : plan_.variant_of_step(step - 1).next_step)
      if (e.to == i && e.variant == plan_.variant_index_of_step(step))
        at = std::max(at, end(r, step - 1, e.from));
    return at;
  }
  double end(int r, int step, std::uint32_t task) const {
    const auto found = times_.find({r, step, task});
    return found == times_.end() ? 0 : found->second.second;
  }
  double& free(int r, const doc::Task& task) { return free_[to_index(r)][to_index(task.resource)]; }
  double price(const doc::Task& task, int r) const {
    const doc::Group& group = plan_.group_of(task);
    return model_
        .collective(collective_of(task.kind), task.bytes,
                    group.size_of_part(group.part_of(r), kRanks))
        .seconds;
  }
  double delay(int r, const doc::Task& task) const {
    const doc::Group& group = plan_.group_of(task);
    const bool alone = group.size_of_part(group.part_of(r), kRanks) < 2;
    return doc::is_communication(task.kind) && !alone ? cluster_.start_delay_s : 0;
  }
  double factor(int rank, const doc::Task& task) const {
    if (task.resource != doc::Resource::compute && task.resource != doc::Resource::codec) return 1;
    for (const doc::RankSpeed& s : cluster_.rank_speeds)
      if (s.rank == rank) return s.compute_factor;
    return 1;
  }

  const doc::Plan& plan_;
  const doc::Cluster& cluster_;
  cost::CostModel model_;
  std::array<std::array<double, 4>, kRanks> free_{};
  std::map<std::tuple<int, int, std::uint32_t>, std::pair<double, double>> times_;
};

TEST(RandomPlans, EveryRankRunsAsIfItStoodAlone) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const doc::Plan plan = random_plan(random);
    doc::Cluster cluster = random_cluster(random);
    if (random.below(2)) cluster.start_delay_s = 0.3 * random.unit();
    const auto expected = Reference(plan, cluster).run();
    for (const bool events : {false, true}) {
      if (events) cluster.contention = doc::Contention{1 + 1e-15, 1};
      const auto trace = trace_tasks(plan, cost::CostModel(cluster), kSteps);
      ASSERT_EQ(trace.size(), expected.size()) << "seed " << seed;
      auto at = expected.begin();
      for (const TracedTask& t : trace) {
        ASSERT_EQ(std::tuple(t.rank, static_cast<int>(t.step), t.task), at->first);
        ASSERT_NEAR(t.start_s, at->second.first, 1e-9) << "seed " << seed << " task " << t.task;
        ASSERT_NEAR(t.end_s, at->second.second, 1e-9) << "seed " << seed << " task " << t.task;
        ++at;
      }
    }
  }
}

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
