// Private: when the device finished what the host asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Launches by correlation. The trace must outlive it.
class LaunchTimes {
 public:
  explicit LaunchTimes(const KinetoTrace& trace);
  /// Null if the trace does not hold the launch.
  const Launch* of(std::uint64_t correlation) const;

 private:
  std::vector<Launch> by_correlation_;
};

/// Answers when the work that the host had launched by some moment was done on the device. Only
/// computation counts, and neither communication nor copies.
///
/// Example. Kernels launched at 1, 2 and 3 ms end at 4, 9 and 7 ms, as they run on two streams.
/// What was launched by 2.5 ms is done at 9 ms, and what was launched by 3 ms is done at 9 ms, too.
/// So a running maximum of the ends, by launch, answers with one binary search.
class DeviceClock {
 public:
  /// Takes the launches within `window`.
  DeviceClock(const KinetoTrace& trace, const LaunchTimes& launches, Span window);

  /// When everything launched up to a moment of the host was done on the device; nullopt if nothing
  /// was.
  std::optional<std::int64_t> work_done_by(std::int64_t host_ns) const;
  /// The same, and not before the host's own time.
  std::int64_t done_by(std::int64_t host_ns) const;

 private:
  std::vector<Span> done_;  // launch, running maximum of the kernels' ends
};

}  // namespace linerate::trace
