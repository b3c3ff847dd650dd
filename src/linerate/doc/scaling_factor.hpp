// Private: T_1 over T_n where both were measured.
#pragma once

#include <optional>
#include <string>

#include "linerate/core/intervals.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::doc {

struct ScalingFactor {
  std::optional<double> value;
  std::string why_none;  // for people; empty if there is a value
};

/// T_1 over the step, whose seconds are more than 0. There is none if all of T_1's interval is
/// above the step. No rank is faster among others than alone, so the two were measured under
/// different load.
ScalingFactor scaling_factor_of(const Bounded& one_rank_s, double step_s);

// Exposed communication: the part of a step that is communication, or waiting for it, and no
// computation. Every figure of that name, predicted or measured, comes from here.

/// Whether a task can hide communication: work on gradients, layers and payloads can. Copies within
/// a rank and host work are neither communication nor computation.
constexpr bool is_computation(TaskKind k) {
  return !is_communication(k) && k != TaskKind::copy && k != TaskKind::host;
}

/// The same for an event. Forward and backward of an imported Timeline are spans around
/// computation, pauses included. The computation itself is in their kernels and operators.
inline bool is_computation(const Timeline& timeline, const Event& event) {
  const bool wraps = timeline.mode == "imported" &&
                     (event.kind == TaskKind::forward || event.kind == TaskKind::backward);
  return is_computation(event.kind) && !wraps;
}

/// The communication of one rank that no computation hides. A communication lasts from the rank's
/// own call to its end, so waiting for the other ranks is part of it. An example: rank 0 calls at 1
/// ms, rank 1 at 3 ms, and it ends at 7 ms. Rank 0 computes until 4 ms, so 3 ms are exposed there.
/// Rank 1 computes nothing, so 4 ms are exposed there.
inline SpanSet exposed_communication(const SpanSet& communication, const SpanSet& computation) {
  return difference_of(communication, computation);
}

/// The time in which a step's rank is looked at. It lasts up to the start of the next step, because
/// messages of a step may run that long. `next`: absent if no such step is known.
inline Span window_of_step(Span step, const std::optional<Span>& next) {
  if (next && next->start_ns >= step.end_ns) step.end_ns = next->start_ns;
  return step;
}

}  // namespace linerate::doc
