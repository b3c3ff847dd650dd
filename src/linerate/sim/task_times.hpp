// When each task ran; both ways of simulating write it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "linerate/sim/membership.hpp"

namespace linerate::sim {

/// Task i of a rank of class c ran in [start[s], end[s]), in seconds, with s = slot(i, c). A task
/// has a slot for every class of its group. A collective has one for each class too: its `start` is
/// the class's own submission, and its `end` that of the whole part.
///
/// An example with two classes. Both have task 0, with the slots 0 and 1. Class 1 alone has task 1,
/// with slot 2. Both have task 2, with the slots 3 and 4. Then `first` is {0, 2, 3, 5}, and slot(2,
/// 1) is 4.
struct TaskTimes {
  std::vector<double> start, end;    // may be longer than needed: memory is used again
  std::vector<std::uint32_t> first;  // [tasks + 1] first slot; empty: all ranks alike, slot = task
  std::vector<std::int32_t> group;   // [tasks] as the Plan says; unused if `first` is empty
  Membership members;                // of the groups; unused if `first` is empty

  /// kNoSlot if the class does not have the task.
  std::uint32_t slot(std::uint32_t task, std::int32_t rank_class) const {
    if (first.empty()) return task;
    const std::uint32_t position = members.position(group[task], rank_class);
    return position == kNoSlot ? kNoSlot : first[task] + position;
  }
  /// Slots of the task, of all its classes.
  std::uint32_t slots_begin(std::uint32_t task) const { return first.empty() ? task : first[task]; }
  std::uint32_t slots_end(std::uint32_t task) const {
    return first.empty() ? task + 1 : first[task + 1];
  }

  /// action(slot of `before`, slot of `after`) for every class that has both tasks.
  template <typename Action>
  void for_shared(std::uint32_t before, std::uint32_t after, Action action) const;
};

template <typename Action>
void TaskTimes::for_shared(std::uint32_t before, std::uint32_t after, Action action) const {
  const std::uint32_t b = first[before], a = first[after];
  if (group[before] == group[after]) {
    for (std::uint32_t k = 0; k < first[after + 1] - a; ++k) action(b + k, a + k);
    return;
  }
  // The smaller group is looked up in the larger: tasks of single ranks may number thousands.
  const auto of_before = members.classes_in(group[before]);
  const auto of_after = members.classes_in(group[after]);
  const std::uint32_t common =
      static_cast<std::uint32_t>(std::min(of_before.size(), of_after.size()));
  const bool before_is_smaller = of_before.size() == common;
  for (std::uint32_t k = 0; k < common; ++k) {
    const std::uint32_t other = before_is_smaller ? members.position(group[after], of_before[k])
                                                  : members.position(group[before], of_after[k]);
    if (other == kNoSlot) continue;
    before_is_smaller ? action(b + k, a + other) : action(b + other, a + k);
  }
}

}  // namespace linerate::sim
