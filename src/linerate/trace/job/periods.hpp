// Private: which marks of the profiler are one step, and which steps repeat together.
#pragma once

#include <optional>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Marks that end in one update of the parameters become one step: gradient accumulation whose
/// profiler marks every pass. Sets Accumulation::marks and RankActivity::marks_ns. Marks outside of
/// whole steps, and those in which nothing ran, are no steps.
void join_marks(Job& job);

/// The job with steps joined to whole periods (Job::updates), if its steps repeat every few.
/// Examples are local SGD, inverses of K-FAC, and a log that is written every few steps. All ranks
/// must have the same period, without an exception, and the median step must differ from the mean
/// one. Absent: every step is like the others.
std::optional<Job> in_periods(const Job& job);

}  // namespace linerate::trace
