// What of a recorded job ran at the same time: operators during collectives, and the reverse; and
// how much slower operators ran then.
#pragma once

#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct Overlap {
  /// Operators and kernels; the same: of one rank, name and place in the step, among as many of
  /// that name in the step. `beside_s`: collectives of the rank moved data. Operators inside others
  /// are left out, and those during coders or communications whose waiting is unknown.
  std::vector<Repetition> compute;
  /// Kernels; the same: of one rank, name and launch, between the same two kernels before and after
  /// it. A model repeats its layers, so that one of them often ran apart from communication.
  std::vector<Repetition> alike;
  /// Collectives; the same: of one operation, size, type and group. `seconds`: from the last rank's
  /// arrival on. `beside_s`: any of its ranks computed.
  std::vector<Repetition> communication;
  /// `beside_s` of each collective, in the order of Breakdown::collectives; -1: unknown.
  std::vector<double> collective_beside_s;
  /// By rank: when it computed while its collectives moved data; and while it communicated at all,
  /// which includes waiting for other ranks and what cannot be told from it.
  std::vector<SpanSet> during_transfers, during_communication;
};

Overlap overlap_of(const Job& job);

/// Of computation during collectives: from the same place of several steps, else from kernels that
/// are alike. Two places differ in more than that (in what the caches hold), so that the low end of
/// the latter's interval is 1.
SlowdownFound compute_slowdown(const Overlap& overlap);

}  // namespace linerate::trace
