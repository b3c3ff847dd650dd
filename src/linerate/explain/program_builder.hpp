// Traces become a program (program.hpp). ceilings.cpp is the caller.
#pragma once

#include "linerate/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// `matched`: the result of match_collectives() for this job. Lanes are in the order of the job's
/// ranks, collectives in the order of the matched ones.
Program program_of(const Job& job, const MatchResult& matched);

}  // namespace linerate::trace
