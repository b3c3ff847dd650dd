// Finds the ranks that may be simulated as one. Two ranks are alike if they have the same speed and
// delay and are in the same part of every group that the graph uses. Then they do the same tasks at
// the same times, in every simulation.
//
// An example: 64 ranks in 8 nodes, one rank of them slow. A Plan with an all-reduce of everybody
// has two classes, the slow rank and the rest. A Plan that also reduces inside nodes has nine: one
// a node, and in the slow rank's node the slow rank by itself. The simulation costs nine ranks and
// not 64.
#include "linerate/sim/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/sim/broadcast_reach.hpp"

namespace linerate::sim {
namespace {

// The groups that tasks of the graph name.
std::vector<bool> used_groups(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::vector<bool> used(plan.groups.size(), false);
  if (used.size() == 1) return {true};
  for (const doc::Task& task : graph.tasks) used[to_index(task.group)] = true;
  return used;
}

// Which parts each rank is in, all used groups' parts numbered through. Sparse: thousands of groups
// of one rank each must not cost ranks times groups.
using PartsOfRank = std::vector<std::vector<std::int32_t>>;

PartsOfRank parts_of_ranks(const doc::Plan& plan, const std::vector<bool>& used) {
  PartsOfRank parts(to_index(plan.ranks));
  std::int32_t number = 0;
  for (std::size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    for (const auto& part : plan.groups[g].parts) {
      for (const std::int32_t rank : part) {
        if (rank < 0 || rank >= plan.ranks)
          throw InputError(plan.groups[g].name,
                           fmt::format("the group names rank {} of {}", rank, plan.ranks));
        parts[to_index(rank)].push_back(number);
      }
      ++number;
    }
  }
  return parts;
}

// Gives every rank its class. The key of a class is speed, delay and the parts; classes are
// numbered in the order of their lowest ranks.
void number_classes(const doc::Plan& plan, const doc::Cluster& cluster,
                    const std::vector<bool>& used, RankClasses& out) {
  const auto ranks = to_index(plan.ranks);
  std::vector<RankClass> speeds(ranks);
  for (const doc::RankSpeed& speed : cluster.rank_speeds)
    if (speed.rank >= 0 && speed.rank < plan.ranks)
      speeds[to_index(speed.rank)] = {speed.compute_factor, speed.delay_s, 0};
  PartsOfRank parts = parts_of_ranks(plan, used);
  std::map<std::tuple<double, double, std::vector<std::int32_t>>, std::int32_t> known;
  for (std::size_t r = 0; r < ranks; ++r) {
    RankClass speed = speeds[r];
    speed.first_rank = static_cast<std::int32_t>(r);
    const auto [entry, is_new] =
        known.try_emplace({speed.compute_factor, speed.delay_s, std::move(parts[r])},
                          static_cast<std::int32_t>(out.classes.size()));
    if (is_new) out.classes.push_back(speed);
    out.class_of.push_back(entry->second);
  }
  if (out.classes.size() == 1) out.class_of.clear();
}

// The classes of a part: a class has all of its ranks in it, so its lowest stands for it.
std::vector<std::int32_t> classes_in(const std::vector<std::int32_t>& part,
                                     const RankClasses& classes) {
  std::vector<std::int32_t> found;
  for (const std::int32_t rank : part) {
    const std::int32_t c = classes.of_rank(rank);
    if (classes.classes[to_index(c)].first_rank == rank) found.push_back(c);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void fill_members(const doc::Plan& plan, const std::vector<bool>& used, RankClasses& out) {
  std::vector<std::int32_t> everybody(out.classes.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  for (std::size_t g = 0; g < used.size(); ++g) {
    out.members.add_group();
    if (!used[g]) continue;
    const auto& parts = plan.groups[g].parts;
    if (parts.empty()) out.members.add_part(everybody, plan.ranks);
    for (const auto& part : parts)
      out.members.add_part(classes_in(part, out), static_cast<std::int32_t>(part.size()));
    out.members.finish_group();
  }
}

// How a broadcast from `task.root` sees the classes of its group. A class of several ranks counts
// as reached when the farthest of its ranks is.
Rooted rooted_at(const doc::Plan& plan, const doc::Task& task, const RankClasses& classes) {
  Rooted rooted;
  const std::int32_t root = std::max(0, task.root);
  rooted.share.resize(classes.members.count(task.group));
  const doc::Group& group = plan.group_of(task);
  const auto parts = static_cast<std::int32_t>(std::max<std::size_t>(1, group.parts.size()));
  for (std::int32_t p = 0; p < parts; ++p) {
    const std::int32_t ranks = group.size_of_part(p, plan.ranks);
    for (std::int32_t i = 0; i < ranks; ++i) {
      const std::int32_t rank = group.parts.empty() ? i : group.parts[to_index(p)][to_index(i)];
      const std::uint32_t position = classes.members.position(task.group, classes.of_rank(rank));
      if (i == root) rooted.root.push_back(position);
      rooted.share[position] = std::max(rooted.share[position], share_of_way(i, root, ranks));
    }
  }
  return rooted;
}

// Once for each pair of group and root, since K-FAC broadcasts thousands of inverses from few
// roots.
void add_roots(const doc::Plan& plan, const doc::TaskGraph& graph, RankClasses& classes) {
  for (const doc::Task& task : graph.tasks)
    if (task.kind == doc::TaskKind::broadcast && !classes.rooted.contains({task.group, task.root}))
      classes.rooted[{task.group, task.root}] = rooted_at(plan, task, classes);
}

}  // namespace

RankClasses classes_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                       const doc::Cluster& cluster) {
  const std::vector<bool> used = used_groups(plan, graph);
  bool parts = false;
  for (std::size_t g = 0; g < used.size(); ++g)
    parts = parts || (used[g] && !plan.groups[g].parts.empty());
  RankClasses result;
  if (cluster.rank_speeds.empty() && !parts)
    result.classes.resize(1);
  else
    number_classes(plan, cluster, used, result);
  fill_members(plan, used, result);
  add_roots(plan, graph, result);
  return result;
}

}  // namespace linerate::sim
