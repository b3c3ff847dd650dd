// Exposed communication: the part of a step that is communication, or waiting for it, and no
// computation. Every figure of that name, predicted or measured, comes from here.
#pragma once

#include <optional>

#include "linerate/core/intervals.hpp"
#include "linerate/doc/task.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::doc {

/// What can hide communication: work on gradients, layers and payloads. Copies within a rank and
/// host work are neither communication nor computation.
constexpr bool is_computation(TaskKind k) {
  return !is_communication(k) && k != TaskKind::copy && k != TaskKind::host;
}

/// Forward and backward of an imported Timeline are the spans in which its computation lies, pauses
/// included: the computation itself are its kernels and operators.
inline bool is_computation(const Timeline& timeline, const Event& event) {
  const bool wraps = timeline.mode == "imported" &&
                     (event.kind == TaskKind::forward || event.kind == TaskKind::backward);
  return is_computation(event.kind) && !wraps;
}

/// For one rank. A communication lasts from the rank's own call to its end, so that waiting for the
/// other ranks is part of it.
inline SpanSet exposed_communication(const SpanSet& communication, const SpanSet& computation) {
  return difference_of(communication, computation);
}

/// The time in which a step's rank is looked at: up to the start of the next step, because what a
/// step started may run that long. `next`: absent if no such step is known.
inline Span window_of_step(Span step, const std::optional<Span>& next) {
  if (next && next->start_ns >= step.end_ns) step.end_ns = next->start_ns;
  return step;
}

}  // namespace linerate::doc
