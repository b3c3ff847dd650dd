// Private: several traces of one rank, one a cycle of the profiler's schedule.
#pragma once

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Recordings of one rank become one recording, in order of time. Steps that were numbered from 0
/// again get numbers after those of the cycle before. Throws InputError if two of them were
/// recorded at the same time: the same trace twice. Times are absolute.
void join_cycles(Job& job);

}  // namespace linerate::trace
