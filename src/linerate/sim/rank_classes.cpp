#include "linerate/sim/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "linerate/core/error.hpp"

namespace linerate::sim {
namespace {

// Ranks that tasks of the graph name; empty when every task is everybody's.
std::vector<bool> ranks_with_own_tasks(const doc::TaskGraph& graph, int ranks) {
  std::vector<bool> own;
  for (const doc::Task& task : graph.tasks) {
    if (task.rank == doc::kEveryRank) continue;
    if (task.rank < 0 || task.rank >= ranks)
      throw InputError(graph.name, fmt::format("a task names rank {} of {}", task.rank, ranks));
    if (own.empty()) own.resize(static_cast<std::size_t>(ranks));
    own[static_cast<std::size_t>(task.rank)] = true;
  }
  return own;
}

}  // namespace

RankClasses classes_of(const doc::TaskGraph& graph, const doc::Cluster& cluster, int ranks) {
  const std::vector<bool> own = ranks_with_own_tasks(graph, ranks);
  RankClasses result;
  result.own_tasks = !own.empty();
  if (cluster.rank_speeds.empty() && own.empty()) {
    result.classes.resize(1);
    return result;
  }
  std::vector<RankClass> speeds(static_cast<std::size_t>(ranks));
  for (const doc::RankSpeed& speed : cluster.rank_speeds)
    if (speed.rank >= 0 && speed.rank < ranks)
      speeds[static_cast<std::size_t>(speed.rank)] = {speed.compute_factor, speed.delay_s, 0};
  std::map<std::tuple<double, double, int>, std::int32_t> known;
  for (int r = 0; r < ranks; ++r) {
    RankClass speed = speeds[static_cast<std::size_t>(r)];
    speed.first_rank = r;
    const bool alone = !own.empty() && own[static_cast<std::size_t>(r)];
    const auto [entry, is_new] =
        known.try_emplace({speed.compute_factor, speed.delay_s, alone ? r : -1},
                          static_cast<std::int32_t>(result.classes.size()));
    if (is_new) result.classes.push_back(speed);
    result.class_of.push_back(entry->second);
  }
  if (result.classes.size() == 1) result.class_of.clear();
  return result;
}

}  // namespace linerate::sim
