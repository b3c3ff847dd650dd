// Times of one collective as a table for a terminal and as JSON.
#pragma once

#include <string>

#include "linerate/cost/collective_times.hpp"

namespace linerate::report {

std::string to_text(const cost::CollectiveTimes& times);
/// {"predictions": [{"ranks", "size_bytes", "time_s", "interval_s", "extrapolated"}, ...]}; an
/// interval is null if nothing was measured: its error is unknown, not of width 0.
std::string to_json(const cost::CollectiveTimes& times);

}  // namespace linerate::report
