// The part of a job that every one of its ranks recorded.
#pragma once

#include <optional>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// As if every rank's recording had begun with the first and ended with the last step that all
/// ranks with steps have: work, communications and marks outside are left out. Steps between them
/// that some ranks lack stay. Absent: every such rank has the same first and last step, or no step
/// is common.
std::optional<Job> common_part(const Job& job);

}  // namespace linerate::trace
