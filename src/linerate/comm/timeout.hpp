// Times that a caller states, as durations of the clock.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "linerate/core/duration.hpp"

namespace linerate::comm {

/// A time as a duration of the clock. Throws UsageError, naming `what`, unless it lies between a
/// millisecond and 1e9 s. Zero, negative times and NaN would end every collective at once, and a
/// larger one would overflow the clock.
[[nodiscard]] std::chrono::steady_clock::duration clock_time(Duration time,
                                                             const std::string& what);

/// How long ranks may take to come together: `caller`'s start_timeout, as clock_time. Without it,
/// the timeout, and at least half a minute.
[[nodiscard]] std::chrono::steady_clock::duration start_time(
    std::optional<Duration> stated, std::chrono::steady_clock::duration timeout,
    const std::string& caller);

}  // namespace linerate::comm
