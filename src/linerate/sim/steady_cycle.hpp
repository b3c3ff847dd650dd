// The cycle of a Plan once it repeats, task by task: predicted Timelines are read from it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

/// The cycle as it repeats: steps first_step .. first_step + the plan's cycle - 1 of `unrolled`.
/// The steps before it let overlapping steps settle. `times` are seconds since the begin of the
/// run, and `origin_s` is time 0 of the cycle: the earliest begin over the classes. Of `classes`
/// only the members are used. Valid as long as the Plan.
struct SteadyCycle {
  Unrolled unrolled;
  TaskTimes times;
  RankClasses classes;
  std::size_t first_step = 0;
  double origin_s = 0;
  double end_s = 0;  // of the last task

  std::size_t steps() const { return unrolled.begins.size() - first_step; }
  /// Rounded to the nanosecond.
  std::int64_t since_origin_ns(double at_s) const { return doc::nanoseconds(at_s - origin_s); }
  /// When a class runs a task; absent if it does not have it, or it takes no time.
  std::optional<Span> span(std::uint32_t task, std::int32_t rank_class) const {
    const std::uint32_t slot = times.slot(task, rank_class);
    if (slot == kNoSlot || times.end[slot] <= times.start[slot]) return std::nullopt;
    return Span{since_origin_ns(times.start[slot]), since_origin_ns(times.end[slot])};
  }
  /// Step `index` of the cycle on a class of ranks. It begins at the end of the class's last
  /// computation in the step before, or at time 0 in the first step of all. It ends at the end of
  /// its last computation in this step. Empty for a class that computes nothing.
  Span step(std::size_t index, std::int32_t rank_class) const;
  /// Where the first step of the cycle begins on a class, by the clock of `times`.
  double begin_s(std::int32_t rank_class) const;
};

/// The cycle, with the graph of all its steps joined.
SteadyCycle steady_cycle(const doc::Plan& plan, const cost::CostModel& model);
/// The same, into memory that was used before. Steps are joined only if simulating them needs it.
void find_steady_cycle(const doc::Plan& plan, Prices& prices, SteadyCycle& cycle);

/// The ranks that a picture of the job shows: all of them up to 16, else one of each class.
std::vector<std::int32_t> shown_ranks(const doc::Plan& plan, const RankClasses& classes);

}  // namespace linerate::sim
