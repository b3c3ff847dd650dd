// Several steps one after the other: their tasks are numbered through, and edges into the next step
// lead to a task like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

/// Borrows the Plan.
struct Unrolled {
  const doc::Plan* plan = nullptr;
  std::vector<std::uint32_t> begins;   // [steps] first task of each step
  std::vector<std::int32_t> variants;  // [steps] index into Plan::variants
  doc::TaskGraph joined;               // several steps as one graph, tasks and edges alone: join()

  const doc::TaskGraph& variant(std::size_t step) const {
    return plan->variants[to_index(variants[step])];
  }
  /// A single step is its variant itself; several must have been joined.
  const doc::TaskGraph& graph() const { return begins.size() == 1 ? variant(0) : joined; }
  /// One past the last task of a step.
  std::uint32_t end(std::size_t step) const {
    return begins[step] + static_cast<std::uint32_t>(variant(step).tasks.size());
  }
};

/// The first step of a Plan that belongs to its cycle.
std::int64_t first_of_cycle(const doc::Plan& plan);
/// True when a step of the cycle reaches into the next one.
bool reaches_next_step(const doc::Plan& plan);

/// Lays out so many steps of the Plan's schedule from `first_step` on. 0 begins as a real run does,
/// with its warm-up; first_of_cycle() begins with the cycle. There is no barrier between steps: the
/// next step waits only for its resources and for the edges that name its variant. Copies no task.
void lay_out_steps(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out);
/// Copies tasks and edges of several steps into one graph.
void join(Unrolled& steps);
/// lay_out_steps() and join().
void unroll(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out);

/// The edges out of the step `before` into a step of this variant that comes after it, sorted by
/// the task that they lead to. `edges` is overwritten.
void find_edges_into(std::int32_t variant, const doc::TaskGraph& before,
                     std::vector<doc::NextStepEdge>& edges);

}  // namespace linerate::sim
