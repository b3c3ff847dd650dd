#include "linerate/sim/run_graph.hpp"

#include <algorithm>

#include "linerate/sim/fluid.hpp"
#include "linerate/sim/sweep.hpp"

namespace linerate::sim {
namespace {

bool contends(const doc::Cluster& cluster) {
  return cluster.contention && (cluster.contention->compute_slowdown != 1 ||
                                cluster.contention->communication_slowdown != 1);
}

bool has_own_tasks(const doc::TaskGraph& graph) {
  return std::any_of(graph.tasks.begin(), graph.tasks.end(),
                     [](const doc::Task& t) { return t.rank != doc::kEveryRank; });
}

}  // namespace

double run_graph(const doc::TaskGraph& graph, Prices& prices,
                 std::span<const std::uint32_t> step_begins, TaskTimes& times, bool starts) {
  const doc::Cluster& cluster = prices.model().cluster();
  const bool alike = cluster.rank_speeds.empty() && !has_own_tasks(graph);
  if (alike && !contends(cluster)) return sweep(graph, prices, times, starts);
  const RankClasses classes = classes_of(graph, cluster, prices.ranks());
  if (contends(cluster))
    return run_fluid(graph, prices, classes, step_begins, *cluster.contention, times);
  return sweep(graph, prices, classes, step_begins, times);
}

}  // namespace linerate::sim
