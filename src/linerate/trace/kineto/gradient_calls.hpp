// Private: which communications may carry gradients, by when the host asked for them.
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

 private:
  std::vector<std::int64_t> backward_;  // begins of autograd's nodes, ascending
  std::vector<Span> optimizer_;         // steps of it: disjoint, by start
};

}  // namespace linerate::trace
