// Private: which communications may carry gradients, and what turn of a step they belong to, by
// when the host asked for them.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients exist from a backward pass to the optimizer's step. What is asked for after that step,
/// up to the next backward pass, is something else: averaged parameters, a loss, statistics of norm
/// layers.
class GradientCalls {
 public:
  explicit GradientCalls(const KinetoTrace& trace);

  /// True if the trace has no backward pass or no optimizer.
  bool may_carry(std::int64_t called_ns) const;
  /// How many updates since the step began have a backward pass before them and another one after
  /// them, up to this call: models that are trained in turn, or one twice.
  int turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const;

 private:
  bool backward_in(Span window) const;

  std::vector<std::int64_t> backward_;  // begins of autograd's nodes, ascending
  std::vector<Span> optimizer_;         // steps of it: disjoint, by start
  std::vector<Span> updates_;           // of these, without a backward pass in or around them
};

}  // namespace linerate::trace
