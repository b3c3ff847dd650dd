// How long a rank was busy with what: lengths of interval sets. Definitions: docs/explain.md.
#pragma once

#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Lengths of interval unions on one rank, or over ranks: see over_ranks. idle = window - union of
/// all device activity; loading_idle is the part of it in which the host loads data.
struct Busy {
  double window_s = 0;
  double compute_s = 0, communication_s = 0, overlap_s = 0, exposed_s = 0, idle_s = 0;
  // exposed_s = transfer + wait + unsplit: data moved, waited for a later rank, or one of the two.
  double exposed_transfer_s = 0, exposed_wait_s = 0, exposed_unsplit_s = 0;
  double loading_idle_s = 0;
  // With ranks missing: exposed transfer is at most this (least duration over repetitions of the
  // same collective).
  double exposed_transfer_most_s = 0;
};

/// The activity of one rank as interval sets.
struct RankSets {
  SpanSet compute, communication, device, transfer, wait, unsplit, transfer_most, loading;
};

/// Everything within `window`; a null window is the whole file.
Busy measure(const RankSets& s, const Span* window);
/// Over the whole file, from stamps as any JSON reader gets them: microseconds in doubles.
Busy measure_as_doubles(const RankActivity& rank);

Busy mean_of(const std::vector<Busy>& all);
/// The mean, but the lower median of idle times: one idle rank, for which the others wait, does not
/// make a job idle.
Busy over_ranks(const std::vector<Busy>& all);
Busy& operator+=(Busy& sum, const Busy& b);
Busy& operator*=(Busy& busy, double factor);

}  // namespace linerate::trace
