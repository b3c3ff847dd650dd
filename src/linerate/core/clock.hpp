// The clock of everything that is measured.
#pragma once

#include <chrono>
#include <cstdint>

namespace linerate {

/// std::chrono::steady_clock in nanoseconds: one clock for all processes of a host.
inline std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace linerate
