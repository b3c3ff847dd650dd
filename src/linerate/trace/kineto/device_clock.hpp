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

/// Computation by the order of its launches; communication and copies do not count.
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
