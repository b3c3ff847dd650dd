// Ranks that do the same work at the same speed are simulated once.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

struct RankClass {
  double compute_factor = 1;    // multiplies compute and codec durations
  double delay_s = 0;           // once a step, before its first computation
  std::int32_t first_rank = 0;  // the lowest of its ranks
};

struct RankClasses {
  std::vector<RankClass> classes;
  std::vector<std::int32_t> class_of;  // [ranks]; empty: all in class 0
  bool own_tasks = false;              // some tasks belong to single ranks

  int count() const { return static_cast<int>(classes.size()); }
  std::int32_t of_rank(std::int32_t rank) const {
    return class_of.empty() ? 0 : class_of[static_cast<std::size_t>(rank)];
  }
};

/// A rank with tasks of its own is a class of its own. Throws InputError when a task names a rank
/// beyond the plan's.
RankClasses classes_of(const doc::TaskGraph& graph, const doc::Cluster& cluster, int ranks);

}  // namespace linerate::sim
