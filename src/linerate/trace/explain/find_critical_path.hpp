// Finds what the dependencies of a job's own traces say.
#pragma once

#include "linerate/trace/explain/critical_path.hpp"
#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// `whole`: the traces of all ranks are there, and their communication was found. Otherwise only
/// pauses and irregular steps are looked for, as a replay needs every rank. `matched` is of `job`.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole);

}  // namespace linerate::trace
