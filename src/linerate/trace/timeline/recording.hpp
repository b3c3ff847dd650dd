// A recorded job in full, as text that its Timeline carries: events alone do not hold what the host
// did, nor whose work a kernel was. Read again, it is explained as the traces are.
#pragma once

#include <string>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// All but what a Timeline has itself: origin, counters, line rate and notes.
std::string recording_of(const Job& job);
/// Throws InputError naming what is wrong in it.
Job job_of_recording(const std::string& text);

}  // namespace linerate::trace
