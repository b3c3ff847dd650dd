// What of a recorded job ran at the same time: operators during collectives, and the reverse; and
// how much slower operators ran then.
#pragma once

#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct Overlap {
  /// Operators and kernels. Equal kind: one rank, one name, the same place among as many of that
  /// name in the step. `beside_s`: the rank's collectives moved data. Operators inside others are
  /// left out, and so are those during coders or during communications whose waiting is unknown.
  std::vector<Repetition> compute;
  /// Kernels. Equal kind: one rank, name and launch, between the same two kernels before and after
  /// it. A model repeats its layers, so one of them often ran apart from communication.
  std::vector<Repetition> alike;
  /// Collectives. Equal kind: one operation, size, type and group. `seconds`: from the last rank's
  /// arrival on. `beside_s`: any of its ranks computed.
  std::vector<Repetition> communication;
  /// `beside_s` of each collective, in the order of Breakdown::collectives; -1: unknown.
  std::vector<double> collective_beside_s;
  /// By rank: when it computed while its collectives moved data, and when it computed while it
  /// communicated at all. The second includes waiting for other ranks, known as such or not.
  std::vector<SpanSet> during_transfers, during_communication;
};

Overlap overlap_of(const Job& job);

/// Slowdown of computation during collectives: from the same place of several steps, else from
/// kernels that are alike. Two places also differ in the content of the caches, so the interval of
/// the second begins at 1.
SlowdownFound compute_slowdown(const Overlap& overlap);

}  // namespace linerate::trace
