// The clock of everything that is measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace linerate {

/// std::chrono::steady_clock in nanoseconds: one clock for all processes of a host.
inline std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Sleeps until this moment of steady_ns(), so it returns a little late.
inline void sleep_until_ns(std::int64_t moment) {
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(moment))));
}

}  // namespace linerate
