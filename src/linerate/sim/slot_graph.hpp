// The task graph as each class of ranks has it: edges between slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/sim/task_times.hpp"

namespace linerate::sim {

/// The edges of a graph, once for every class that has both ends. A class waits only for the
/// predecessors of a task that it has itself; between classes only collectives wait. So the slots
/// of two classes share no edge. doc::VariantIndex says the same of tasks.
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
