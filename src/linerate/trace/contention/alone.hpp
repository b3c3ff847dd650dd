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

/// By rank: what at_work() has between kernels. A profiler makes it longer.
std::vector<SpanSet> between_kernels(const Job& job);

/// By rank: when its device had nothing to do because the host was still at work on what comes
/// next. A profiler makes these pauses longer. None if the CPU is the device, or the host unknown.
std::vector<SpanSet> waits_for_host(const Job& job);

/// So much of the time in `spans` of each rank passes in no time.
struct LeftOut {
  const std::vector<SpanSet>& spans;  // by rank
  double share = 0;                   // below 1, or 1
};

/// Every rank's clock is bent for itself: times of different ranks no longer compare.
Job without(Job job, const std::vector<LeftOut>& all);

}  // namespace linerate::trace
