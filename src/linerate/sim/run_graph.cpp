#include <algorithm>

#include "linerate/sim/fluid.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {
namespace {

template <typename Action>
void for_edges(const doc::TaskGraph& graph, const TaskTimes& times, Action action) {
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
    for (const std::uint32_t p : graph.predecessors(i)) times.for_shared(p, i, action);
}

}  // namespace

// Two passes over the edges fill the CSR arrays: the first one counts, the second one writes.
SlotGraph::SlotGraph(const doc::TaskGraph& graph, const TaskTimes& times)
    : waits(times.first.back(), 0), begin_(times.first.back() + 1, 0) {
  for_edges(graph, times, [this](std::uint32_t before, std::uint32_t after) {
    ++waits[after];
    ++begin_[before + 1];
  });
  for (std::size_t s = 0; s < waits.size(); ++s) begin_[s + 1] += begin_[s];
  successors_.resize(begin_.back());
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  for_edges(graph, times, [this, &next](std::uint32_t before, std::uint32_t after) {
    successors_[next[before]++] = after;
  });
}

// The choice among the three ways of simulating, by what the Cluster and the Plan need:
//   one sweep            ranks are alike and nothing contends
//   a sweep over classes ranks differ, in speed or in their groups
//   events (fluid.cpp)   the Cluster says that computation and communication slow each other down
// All three agree if two of them apply; the cheaper one is taken, because searches simulate
// thousands of Plans.

namespace {

// Whether every rank has every task. A plan with one group needs no look at its tasks.
bool is_whole(const doc::Plan& plan, const doc::TaskGraph& graph) {
  return plan.groups.size() == 1 ||
         std::all_of(graph.tasks.begin(), graph.tasks.end(),
                     [](const doc::Task& t) { return t.group == doc::kWhole; });
}

}  // namespace

bool are_alike(const Unrolled& steps, const doc::Cluster& cluster) {
  if (!cluster.rank_speeds.empty()) return false;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    const bool is_new = s == 0 || steps.variants[s] != steps.variants[s - 1];
    if (is_new && !is_whole(*steps.plan, steps.variant(s))) return false;
  }
  return true;
}

bool contends(const Prices& prices) { return prices.contention().any(); }

double run_graph(const doc::Plan& plan, const doc::TaskGraph& graph, Prices& prices,
                 std::span<const std::uint32_t> step_begins, TaskTimes& times, bool starts) {
  const doc::Cluster& cluster = prices.model().cluster();
  const bool contended = contends(prices);
  if (!contended && cluster.rank_speeds.empty() && is_whole(plan, graph))
    return sweep(graph, prices, times, starts);
  const RankClasses classes = classes_of(plan, graph, cluster);
  if (contended) return run_fluid(graph, prices, classes, step_begins, prices.contention(), times);
  return sweep(graph, prices, classes, step_begins, times);
}

double run_steps(Unrolled& steps, Prices& prices, TaskTimes& times, bool starts) {
  const doc::Cluster& cluster = prices.model().cluster();
  if (!contends(prices) && are_alike(steps, cluster)) return sweep(steps, prices, times, starts);
  join(steps);
  return run_graph(*steps.plan, steps.graph(), prices, steps.begins, times, starts);
}

}  // namespace linerate::sim
