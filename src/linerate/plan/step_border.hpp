// Where one step ends and the next begins: edges from the last collectives of a variant to the
// updates at the head of whichever follows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/plan/passes.hpp"

namespace linerate::plan {

/// Valid as long as the step's graph and what it was made with.
struct StepBorder {
  /// A task at the head of the step, and the positions of the gradients that it needs.
  struct Need {
    std::uint32_t task = 0;
    std::span<const std::int32_t> gradients;
  };
  std::vector<std::uint32_t> arrival;  // [gradients] the task that brings it back
  std::vector<Need> needs;
};

/// The border of a step whose tasks are in their places (Draft::linearise). `curvature` is null if
/// nothing is preconditioned.
void find_border(const doc::Workload& workload, const StepDraft& step, const Curvature* curvature,
                 StepBorder& border);

/// Appends edges to the graph of a step. Updates of variant `variant`, and what they wait for, wait
/// for the arrival of each of their gradients in the step before.
void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                std::int32_t variant);

}  // namespace linerate::plan
