// Private: a Kineto trace becomes a rank of a job.
#pragma once

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Adds the rank to the job: joins kernels with their collective metadata (own arguments, then
/// External id, then launch and enclosing annotation), assigns steps by launch, and notes what
/// stays unknown. Times become absolute; Job::origin_ns is not touched.
void add_rank(const KinetoTrace& trace, Job& job);

}  // namespace linerate::trace
