// The same job without what several ranks and a profiler add to the time of each.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/contention/overlap.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Kernels that follow each other lie a few microseconds apart, whatever host and network do.
inline constexpr std::int64_t kBetweenKernelsNs = 10'000;

/// When a rank computed; a device also copied, or was between two kernels that follow each other.
SpanSet at_work(const RankActivity& rank, bool on_device);

/// By rank: communication while it was not at work.
std::vector<SpanSet> exposed_communication_of(const Job& job);

/// By rank: what at_work() has between kernels. A profiler makes it longer.
std::vector<SpanSet> between_kernels(const Job& job);

/// By rank: when its device had nothing to do because the host was still at work on what comes
/// next. A profiler makes these pauses longer. None if the CPU is the device, or the host unknown.
std::vector<SpanSet> waits_for_host(const Job& job);

/// By rank: when its device had nothing to do, and its host was between two operators that follow
/// each other within a millisecond. That is Python, which a profiler slows, too.
std::vector<SpanSet> waits_between_operators(const Job& job);

/// By rank: the time that a hook takes to make gradients smaller before they are sent. It is its
/// work on the device, and the time in which the device does nothing during its calls. None if
/// gradients are sent whole, or if their sizes or those of the exchanges are unknown.
std::vector<SpanSet> hook_times(const Job& job);

/// A share of the time in `spans` is left out, as if it passed in no time.
struct LeftOut {
  const std::vector<SpanSet>& spans;  // by rank
  double share = 0;                   // below 1, or 1
};

/// The job without these times. Every rank's clock is bent by itself, so times of different ranks
/// no longer compare.
Job without(Job job, const std::vector<LeftOut>& all);

}  // namespace linerate::trace
