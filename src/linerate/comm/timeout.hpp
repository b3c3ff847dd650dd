// Times that a caller states, as durations of the clock.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "linerate/core/duration.hpp"

namespace linerate::comm {

/// Throws UsageError, naming `what`, unless the time lies between a millisecond and 1e9 s: 0, a
/// negative one and NaN would end every collective at once, a larger one would overflow the clock.
[[nodiscard]] std::chrono::steady_clock::duration clock_time(Duration time,
                                                             const std::string& what);

/// How long ranks may take to come together: what `caller`'s start_timeout states, as clock_time;
/// without one the timeout, and at least half a minute.
[[nodiscard]] std::chrono::steady_clock::duration start_time(
    std::optional<Duration> stated, std::chrono::steady_clock::duration timeout,
    const std::string& caller);

}  // namespace linerate::comm
