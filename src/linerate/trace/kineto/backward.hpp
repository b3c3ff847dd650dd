// Private: which communications may carry gradients, and what turn of a step they belong to, by
// when the host asked for them.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients exist from a backward pass to the optimizer's step. A communication that is asked for
/// between that step and the next backward pass carries something else. Examples are averaged
/// parameters, a loss, statistics of norm layers.
///
/// Example. Backward runs from 1 to 5 ms, the optimizer from 6 to 7 ms, and backward again from 10
/// ms. A call at 4 or 6.5 ms may carry gradients, a call at 8 ms may not. If both passes are of one
/// step, a call at 11 ms belongs to its turn 1.
class GradientCalls {
 public:
  explicit GradientCalls(const KinetoTrace& trace);

  /// True if the trace has no backward pass or no optimizer.
  bool may_carry(std::int64_t called_ns) const;
  /// The turn of the step that a call belongs to, from 0. A turn ends with an update that has a
  /// backward pass before it and another one between it and the call.
  int turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const;

 private:
  bool backward_in(Span window) const;

  std::vector<std::int64_t> backward_;  // begins of autograd's nodes, ascending
  std::vector<Span> optimizer_;         // steps of it: disjoint, by start
  std::vector<Span> updates_;           // of these, without a backward pass in or around them
};

// Private: the backward passes of one rank, from a trace's own records.

/// Gradients, layers and times of the backward passes that the host ran within each step, by start.
/// Times are as in the trace. A step has several passes if it accumulates: passes over the same
/// gradients with forward operators between them. Otherwise all of it is one pass, also if an
/// update parts it into turns (GradientRecord::turn). Steps without gradients, or without their
/// shapes, have no pass.
std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls);

}  // namespace linerate::trace
