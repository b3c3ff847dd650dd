#include "linerate/comm/timeout.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::comm {

std::chrono::steady_clock::duration to_duration(Seconds time, const std::string& what) {
  constexpr double kLeast = 1e-3, kMost = 1e9;
  if (!(time.value >= kLeast && time.value <= kMost))  // false for NaN too
    throw UsageError(
        fmt::format("{}: expected a time from 1ms to 1e9s, found {}s", what, time.value));
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(time.value));
}

}  // namespace linerate::comm
