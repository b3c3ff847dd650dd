// Every task of the first steps of a Plan, rank by rank: what a run of it is held against.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::support {

struct TracedTask {
  std::int32_t rank = 0;
  std::int64_t step = 0;   // of the Plan's schedule, warm-up included
  std::uint32_t task = 0;  // index in the step's variant
  double start_s = 0;      // since the begin of step 0; of a collective: the rank's own submission
  double end_s = 0;
};

/// Steps 0 .. steps - 1, ordered by rank, then step, then task; a task that a rank does not have is
/// absent. What the cost model's Cluster says about contention and rank speeds is obeyed.
inline std::vector<TracedTask> trace_tasks(const doc::Plan& plan, const cost::CostModel& model,
                                           int steps) {
  sim::Unrolled unrolled;
  sim::unroll(plan, 0, steps, unrolled);
  sim::Prices prices(model, plan.ranks);
  sim::TaskTimes times;
  sim::run_steps(unrolled, prices, times);
  const sim::RankClasses classes = sim::classes_of(plan, unrolled.graph(), model.cluster());
  std::vector<TracedTask> trace;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank)
    for (std::size_t step = 0; step < unrolled.begins.size(); ++step)
      for (std::uint32_t i = unrolled.begins[step]; i < unrolled.end(step); ++i) {
        const std::uint32_t slot = times.slot(i, classes.of_rank(rank));
        if (slot == sim::kNoSlot) continue;
        trace.push_back({rank, static_cast<std::int64_t>(step), i - unrolled.begins[step],
                         times.start[slot], times.end[slot]});
      }
  return trace;
}

}  // namespace linerate::support
