// The part of a job that every one of its ranks recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Numbers of the steps that some rank with steps lacks, or has in part.
std::set<std::int64_t> steps_of_some(const Job& job);

/// As if every rank's recording had begun with the first and ended with the last step that all
/// ranks with steps have whole: work, communications and marks outside are left out. Steps between
/// them that some ranks lack stay. Absent: every such rank has the same first and last step, or no
/// step is common.
std::optional<Job> common_part(const Job& job);

}  // namespace linerate::trace
