// Times that a caller sets.
#pragma once

#include <chrono>

#include "linerate/core/units.hpp"

namespace linerate {

/// A time that a caller sets: a timeout, a deadline, an interval or a budget. It is a duration of
/// std::chrono, so that `60s`, `500ms` and std::chrono::minutes(5) can be written. Times that are
/// measured, predicted or stand in a document are numbers of seconds. Their names end in `_s`, or
/// the type is `Seconds` (docs/units.md).
using Duration = std::chrono::duration<double>;

/// A time that was typed ("5min", core/text.hpp) as one that is set.
[[nodiscard]] constexpr Duration to_duration(Seconds time) { return Duration(time.value); }

}  // namespace linerate
