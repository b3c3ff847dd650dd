// Seconds that a user states, as a duration of the clock.
#pragma once

#include <chrono>
#include <string>

#include "linerate/core/units.hpp"

namespace linerate::comm {

/// Throws UsageError, naming `what`, unless the time lies between a millisecond and 1e9 s: 0, a
/// negative one and NaN would end every collective at once, a larger one would overflow the clock.
std::chrono::steady_clock::duration to_duration(Seconds time, const std::string& what);

}  // namespace linerate::comm
