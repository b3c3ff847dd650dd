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

/// The variants that a cycle runs through, one a step.
using Cycle = std::vector<const doc::TaskGraph*>;

/// Of a Plan, its warm-up left out.
Cycle cycle_of(const doc::Plan& plan);
/// True when a variant of the cycle reaches into the next step.
bool reaches_next_step(const Cycle& cycle);

/// The cycle, over and over, for so many steps. No barrier between steps: what holds the next one
/// back are its resources and the edges.
void unroll(const Cycle& cycle, int steps, Unrolled& out);

}  // namespace linerate::sim
