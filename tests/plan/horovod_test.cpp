// Horovod's cycle: buckets leave at a tick of the clock.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

constexpr double kCycle = 5e-3;

doc::Plan clocked(const doc::Workload& w, const std::string& threshold) {
  return make_plan(w, support::two_rank_cluster(1e-4, 1e-9),
                   doc::parse_strategy("horovod(timer=clock, threshold=" + threshold + ")"), 2);
}

// When the timers of a graph ring, since the start of backward: each begins when the one before
// it rang.
std::vector<double> ring_times(const doc::Plan& plan, const doc::TaskGraph& g) {
  std::vector<double> rings(g.tasks.size(), 0);
  std::int64_t before = -1;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    if (!is_timer(plan, g.tasks[i])) continue;
    EXPECT_EQ(g.predecessors(i).size(), 1u);
    if (before >= 0) {
      EXPECT_EQ(g.predecessors(i)[0], before);
    }
    rings[i] = g.tasks[i].seconds + (before < 0 ? 0 : rings[static_cast<std::size_t>(before)]);
    before = static_cast<std::int64_t>(i);
  }
  return rings;
}

// 161 gradients 1.1 ms apart, each a bucket of its own: one leaves at the first tick at or after
// its own time. Timers that queued would ring at the sum of all ticks before, up to seconds late.
TEST(Horovod, EachBucketLeavesAtItsOwnTick) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters(), 1.1e-3);
  const doc::Plan plan = clocked(w, "0MiB");
  const doc::TaskGraph& g = plan.variants.back();
  const std::vector<double> rings = ring_times(plan, g);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    if (!doc::is_communication(g.tasks[i].kind)) continue;
    double leaves = w.gradients[sent].ready_s;
    for (const std::uint32_t p : g.predecessors(i)) leaves = std::max(leaves, rings[p]);
    EXPECT_NEAR(leaves, std::ceil(w.gradients[sent].ready_s / kCycle) * kCycle, 1e-9) << sent;
    ++sent;
  }
  EXPECT_EQ(sent, w.gradients.size());
}

TEST(Horovod, TheFirstTimerIsSetWhenBackwardBegins) {
  const doc::Plan plan = clocked(support::workload_at({1e-3, 7e-3}, {8, 8}), "64MiB");
  const doc::TaskGraph& g = plan.variants.back();
  for (std::size_t i = 0; i < g.tasks.size(); ++i)
    if (is_timer(plan, g.tasks[i])) {
      EXPECT_EQ(g.tasks[g.predecessors(i)[0]].kind, doc::TaskKind::forward);
      EXPECT_DOUBLE_EQ(g.tasks[i].seconds, kCycle);
      return;
    }
  FAIL() << "no timer";
}

TEST(Horovod, TheFirstStepWaitsForNoTimer) {
  const doc::Plan plan = clocked(support::workload_at({1e-3, 7e-3}, {8, 8}), "64MiB");
  for (const doc::Task& t : plan.variants.front().tasks) EXPECT_FALSE(is_timer(plan, t));
}

}  // namespace
}  // namespace linerate::plan
