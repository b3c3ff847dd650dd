// Several steps as one graph: edges into the next step become plain ones.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/doc/plan.hpp"

namespace linerate::sim {

/// Borrows the Plan: a single step is that variant itself, several are copied.
struct Unrolled {
  const doc::TaskGraph* single = nullptr;  // if it is one step
  doc::TaskGraph joined;                   // else: tasks and edges alone
  std::vector<std::uint32_t> begins;       // [steps] first task of each step
  std::vector<std::int32_t> variants;      // [steps] index into Plan::variants

  const doc::TaskGraph& graph() const { return single ? *single : joined; }
  /// One past the last task of a step.
  std::uint32_t end(std::size_t step) const {
    return step + 1 < begins.size() ? begins[step + 1]
                                    : static_cast<std::uint32_t>(graph().tasks.size());
  }
};

/// The first step of a Plan that belongs to its cycle.
std::int64_t first_of_cycle(const doc::Plan& plan);
/// True when a step of the cycle reaches into the next one.
bool reaches_next_step(const doc::Plan& plan);

/// Unrolls so many steps of the Plan's schedule, from `first_step` on: 0 for a real run, its
/// warm-up included, first_of_cycle() for the cycle alone. There is no barrier between steps: only
/// resources and the edges that name its variant hold the next one back.
void unroll(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out);

}  // namespace linerate::sim
