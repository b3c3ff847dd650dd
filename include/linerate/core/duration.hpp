// Times that a caller sets.
#pragma once

#include <chrono>

#include "linerate/core/units.hpp"

namespace linerate {

/// What a caller sets as a timeout, a deadline, an interval or a budget is a duration of
/// std::chrono, so that `60s`, `500ms` and std::chrono::minutes(5) can be written. What is
/// measured, predicted or stands in a document is a number of seconds, whose name ends in `_s`
/// (a `Seconds` where a type says so): docs/units.md.
using Duration = std::chrono::duration<double>;

/// A time that was typed ("5min", core/text.hpp) as one that is set.
[[nodiscard]] constexpr Duration to_duration(Seconds time) { return Duration(time.value); }

}  // namespace linerate
