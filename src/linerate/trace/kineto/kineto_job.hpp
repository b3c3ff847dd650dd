// Private: a Kineto trace becomes a rank of a job.
#pragma once

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Adds the rank to the job. Kernels are joined with their collective metadata (launch_join.hpp),
/// and steps are assigned by launch. Notes say what stays unknown. Times become absolute;
/// Job::origin_ns is not touched.
void add_rank(const KinetoTrace& trace, Job& job);

}  // namespace linerate::trace
