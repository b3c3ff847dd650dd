#include "linerate/comm/timeout.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::comm {

std::chrono::steady_clock::duration clock_time(Duration time, const std::string& what) {
  constexpr double kLeast = 1e-3, kMost = 1e9;
  const double seconds = time.count();
  if (!(seconds >= kLeast && seconds <= kMost))  // false for NaN too
    throw UsageError(fmt::format("{}: expected a time from 1ms to 1e9s, found {}s", what, seconds));
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

}  // namespace linerate::comm
