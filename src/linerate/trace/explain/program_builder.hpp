// Traces become a program.
#pragma once

#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

Program program_of(const Job& job, const MatchResult& matched);

}  // namespace linerate::trace
