// The task graph as each class of ranks has it: edges between slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/sim/task_times.hpp"

namespace linerate::sim {

/// A class waits for those predecessors of a task that it has itself. doc::VariantIndex says the
/// same of tasks; here are the slots of all classes at once, which share no successor.
struct SlotGraph {
  /// Takes the slots that `times` lays out for the graph.
  SlotGraph(const doc::TaskGraph& graph, const TaskTimes& times);

  std::vector<std::uint32_t> waits;  // [slots] predecessors that are not done

  std::span<const std::uint32_t> successors(std::uint32_t slot) const {
    return {successors_.data() + begin_[slot], successors_.data() + begin_[slot + 1]};
  }

 private:
  std::vector<std::uint32_t> begin_, successors_;  // CSR
};

}  // namespace linerate::sim
