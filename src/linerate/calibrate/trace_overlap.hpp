// What of a recorded job ran at the same time: operators during collectives, and the reverse.
#pragma once

#include <vector>

#include "linerate/calibrate/slowdown.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::calibrate {

struct TraceOverlap {
  /// Operators and kernels; the same: of one rank, name and place in the step, among as many of
  /// that name in the step. `beside_s`: collectives of the rank moved data. Operators inside others
  /// are left out, and those during coders or communications whose waiting is unknown.
  std::vector<Repetition> compute;
  /// Collectives; the same: of one operation, size, type and group. `seconds`: from the last rank's
  /// arrival on. `beside_s`: any of its ranks computed.
  std::vector<Repetition> communication;
  /// `beside_s` of each collective, in the order of trace::Breakdown::collectives; -1: unknown.
  std::vector<double> collective_beside_s;
};

TraceOverlap overlap_of(const trace::Job& job);

}  // namespace linerate::calibrate
