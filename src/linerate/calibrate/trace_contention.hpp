// How much computation and collectives of a recorded job slow each other down.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/calibrate/trace_overlap.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// From operators and collectives that ran both with and without the other beside them
/// (slowdown.hpp). What cannot be told is 1, absent where that is both: `notes` says so, and of
/// what was found the interval. What coding costs is never told: 1.
std::optional<doc::Contention> contention_from_trace(const TraceOverlap& overlap,
                                                     const std::string& source,
                                                     std::vector<std::string>& notes);

}  // namespace linerate::calibrate
