// When each task ran: what both ways of simulating write.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate::sim {

/// Task i of class c ran in [start[s], end[s]) with s = slot(i, c). Collectives that join all ranks
/// and tasks of one rank have one slot; tasks that every class runs by itself have one per class.
struct TaskTimes {
  std::vector<double> start, end;    // may be longer than needed: memory is used again
  std::vector<std::uint32_t> first;  // [tasks + 1] first slot; empty: one class, slot = task

  std::uint32_t slot(std::uint32_t task, std::int32_t rank_class) const {
    if (first.empty()) return task;
    const bool shared = first[task + 1] - first[task] == 1;
    return first[task] + (shared ? 0 : static_cast<std::uint32_t>(rank_class));
  }
};

}  // namespace linerate::sim
