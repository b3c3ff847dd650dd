// Finds what the dependencies of a job's own traces say.
#pragma once

#include "linerate/trace/explain/critical_path.hpp"
#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// `whole`: no rank is missing, and their communication is known.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole);

}  // namespace linerate::trace
