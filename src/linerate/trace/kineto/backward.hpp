// Private: gradients and layers of one backward pass, from a trace's own records.
#pragma once

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients, layers and their times of the backward pass that the host ran within `step` (times as
/// in the trace); false when there is none or when shapes are missing.
bool add_backward(const KinetoTrace& trace, Span step, Job& job);

}  // namespace linerate::trace
