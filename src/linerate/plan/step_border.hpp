// Where one step ends and the next begins: edges from the last collectives of a variant to the
// updates at the head of whichever follows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "linerate/plan/passes.hpp"

namespace linerate::plan {

struct StepBorder {
  std::vector<std::uint32_t> arrival;  // [gradients] the task that brings it back
  std::vector<std::pair<std::uint32_t, std::int32_t>> updates;  // at the head: (task, bucket)
};

/// Of a step whose tasks are in their places (Draft::linearise).
StepBorder border_of(const doc::Workload& workload, const StepDraft& step);

/// The updates of `next`, which is variant `variant`, wait for the arrival of each of their
/// gradients in the step before; appended to that step's graph.
void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                const doc::TaskGraph& next, std::int32_t variant);

}  // namespace linerate::plan
