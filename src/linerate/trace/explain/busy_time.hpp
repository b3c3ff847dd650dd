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

/// Everything within `window`; a null window is the whole file. Exposed communication is parted
/// into transfer, wait and unsplit, in this order of precedence: one moment counts once.
[[nodiscard]] Busy measure(const RankSets& s, const Span* window);
/// Over the whole file, from stamps as any JSON reader gets them: microseconds in doubles.
[[nodiscard]] Busy measure_as_doubles(const RankActivity& rank);

[[nodiscard]] Busy mean_of(const std::vector<Busy>& all);
/// The mean, but the lower median of idle times. If rank 1 sleeps and ranks 0 and 2 wait for it in
/// a collective, only rank 1's device is idle. That job is late, and not idle.
[[nodiscard]] Busy over_ranks(const std::vector<Busy>& all);
Busy& operator+=(Busy& sum, const Busy& b);
Busy& operator*=(Busy& busy, double factor);

}  // namespace linerate::trace
