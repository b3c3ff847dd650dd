// How long a rank was busy with what: lengths of interval sets. Definitions: docs/explain.md.
#pragma once

#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/explain/busy.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

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
