#include "linerate/comm/channel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"

namespace linerate::comm {

std::chrono::steady_clock::duration clock_time(Duration time, const std::string& what) {
  constexpr double kLeast = 1e-3, kMost = 1e9;
  const double seconds = time.count();
  if (!(seconds >= kLeast && seconds <= kMost))  // false for NaN too
    throw UsageError(fmt::format("{}: expected a time from 1ms to 1e9s, found {}s", what, seconds));
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

std::chrono::steady_clock::duration start_time(std::optional<Duration> stated,
                                               std::chrono::steady_clock::duration timeout,
                                               const std::string& caller) {
  if (stated) return clock_time(*stated, caller + ": start_timeout");
  return std::max<std::chrono::steady_clock::duration>(timeout, std::chrono::seconds(30));
}

}  // namespace linerate::comm
