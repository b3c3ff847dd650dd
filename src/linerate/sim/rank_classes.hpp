// Ranks that do the same work at the same speed are simulated once.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/membership.hpp"

namespace linerate::sim {

struct RankClass {
  double compute_factor = 1;    // multiplies compute and codec durations
  double delay_s = 0;           // once a step, before its first computation
  std::int32_t first_rank = 0;  // the lowest of its ranks
};

/// The classes of a group as a broadcast sees them.
struct Rooted {
  std::vector<std::uint32_t> root;  // [parts] the root's class, as a position within the group
  std::vector<double> share;        // [positions within the group] of the farthest rank of a class
};

struct RankClasses {
  std::vector<RankClass> classes;      // by their lowest rank
  std::vector<std::int32_t> class_of;  // [ranks]; empty: all in class 0
  Membership members;
  std::map<std::pair<std::int32_t, std::int32_t>, Rooted> rooted;  // by group and root

  /// For a broadcast's task.
  const Rooted& seen_by(const doc::Task& task) const { return rooted.at({task.group, task.root}); }
  int count() const { return static_cast<int>(classes.size()); }
  std::int32_t of_rank(std::int32_t rank) const {
    return class_of.empty() ? 0 : class_of[to_index(rank)];
  }
};

/// A class is of one speed and one delay, and of one part in every group that the graph's tasks
/// name. Throws InputError when such a group names a rank beyond the plan's.
RankClasses classes_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                       const doc::Cluster& cluster);

}  // namespace linerate::sim
