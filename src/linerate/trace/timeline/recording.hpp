// A recorded job in full, as text that its Timeline carries. Events alone lack what the host did,
// and which operator a kernel came from. A job that is read again from this text is explained as
// its traces are.
#pragma once

#include <string>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// All but what a Timeline has itself: origin, counters, line rate and notes.
std::string recording_of(const Job& job);
/// Throws InputError naming what is wrong in it.
Job job_of_recording(const std::string& text);

}  // namespace linerate::trace
