// The cycle of a Plan once it repeats, task by task: predicted Timelines are read from it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

/// Steps first_step .. first_step + the plan's cycle - 1 of `unrolled` are the cycle; those before
/// it let overlapping steps settle. Times in `times` are seconds; `origin_s` is time 0 of the
/// cycle.
struct SteadyCycle {
  Unrolled unrolled;
  TaskTimes times;
  RankClasses classes;
  std::size_t first_step = 0;
  double origin_s = 0;

  std::size_t steps() const { return unrolled.begins.size() - first_step; }
  /// Rounded to the nanosecond.
  std::int64_t since_origin_ns(double at_s) const;
  /// When a class runs a task; absent if it does not have it, or it takes no time.
  std::optional<Span> span(std::uint32_t task, std::int32_t rank_class) const;
  /// Step `index` of the cycle on a class of ranks: from the end of its last computation in the
  /// step before (time 0 in the first step of all) to the end of its last computation in this one.
  /// Empty for a class that computes nothing.
  Span step(std::size_t index, std::int32_t rank_class) const;
};

SteadyCycle steady_cycle(const doc::Plan& plan, const cost::CostModel& model);
/// The same into memory that was used before.
void find_steady_cycle(const doc::Plan& plan, const cost::CostModel& model, SteadyCycle& cycle);

/// The ranks that a picture of the job holds: every one of up to 16, else one of each class.
std::vector<std::int32_t> shown_ranks(const doc::Plan& plan, const RankClasses& classes);

}  // namespace linerate::sim
