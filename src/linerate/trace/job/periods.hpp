// Private: which marks of the profiler are one step, and which steps repeat together.
#pragma once

#include <optional>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Marks that end in one update of the parameters become one step: gradient accumulation whose
/// profiler marks every pass. Sets Accumulation::marks and RankActivity::marks_ns. Marks outside of
/// whole steps, and those in which nothing ran, are no steps.
void join_marks(Job& job);

/// Steps of a job that repeats every few of them, joined to whole periods (Job::updates): local
/// SGD, inverses of K-FAC, a loader or a log that takes its time every few steps. What the steps
/// sent, what they computed or how long they took must repeat without an exception, and the
/// median step must not stand for the mean one. Absent: every step is like the others.
std::optional<Job> in_periods(const Job& job);

}  // namespace linerate::trace
