// The part of a job that every one of its ranks recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Numbers of the steps that some rank with steps lacks, or has in part.
std::set<std::int64_t> steps_of_some(const Job& job);

/// The part of the job from the first to the last step that all ranks with steps have whole. The
/// rest is as if it had not been recorded. Work, communications and marks outside are left out. If
/// rank 0 recorded steps 3 to 9 and rank 1 steps 5 to 12, both keep 5 to 9. Steps between these
/// that some rank lacks stay (steps_of_some names them). Absent: every such rank has the same first
/// and last step, or no step is common.
std::optional<Job> common_part(const Job& job);

}  // namespace linerate::trace
