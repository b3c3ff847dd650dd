// Private: what a Kineto trace says about communication, computation and gradients.
#pragma once

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Adds the rank to the job: joins kernels with their collective metadata (prediction
/// reference 6.1: own arguments, then External id, then launch and enclosing annotation), assigns
/// steps by launch, and notes what stays unknown. Times become absolute; Job::origin_ns is not
/// touched.
void add_rank(const KinetoTrace& trace, Job& job);
/// Gradients, layers and their times of the backward pass that the host ran within `step` (times as
/// in the trace); false when there is none or when shapes are missing.
bool add_backward(const KinetoTrace& trace, Span step, Job& job);

}  // namespace linerate::trace
