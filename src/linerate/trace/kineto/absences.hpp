// Private: what a Kineto trace lacks, said to the user: unknown is never written as zero.
#pragma once

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Notes for `job` on what the trace of `rank` does not say. Sets Job::communication_unknown if a
/// job of several ranks shows no communication.
void note_absences(const KinetoTrace& trace, const RankActivity& rank, Job& job);

}  // namespace linerate::trace
