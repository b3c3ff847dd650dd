// Every task of the first steps of a Plan, rank by rank: what a run of it is held against.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

struct TracedTask {
  std::int32_t rank = 0;
  std::int64_t step = 0;   // of the Plan's schedule, warm-up included
  std::uint32_t task = 0;  // index in the step's variant
  double start_s = 0;      // since the begin of step 0; of a collective: the rank's own submission
  double end_s = 0;
};

/// Steps 0 .. steps - 1, ordered by rank, then step, then task; a task that a rank does not have is
/// absent. What the cost model's Cluster says about contention and rank speeds is obeyed.
std::vector<TracedTask> trace_tasks(const doc::Plan& plan, const cost::CostModel& model, int steps);

}  // namespace linerate::sim
