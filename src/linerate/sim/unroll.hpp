// Several steps as one graph: edges into the next step become plain ones.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/doc/plan.hpp"

namespace linerate::sim {

struct Unrolled {
  doc::TaskGraph graph;
  std::vector<std::uint32_t> begins;  // [steps] first task of each step
};

/// Steps 0 .. steps-1 of the plan's cycle, warm-up left out. No barrier between steps: what holds
/// the next one back are its resources and the edges.
void unroll(const doc::Plan& plan, int steps, Unrolled& out);

/// True when a variant of the cycle reaches into the next step.
bool reaches_next_step(const doc::Plan& plan);

}  // namespace linerate::sim
