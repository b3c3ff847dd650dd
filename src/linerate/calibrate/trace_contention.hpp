// How much computation and collectives of a recorded job slow each other down.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/cluster.hpp"
#include "linerate/trace/contention/overlap.hpp"

namespace linerate::calibrate {

/// From operators and collectives that ran both with and without the other (slowdown.hpp). An
/// unknown factor is 1, and `notes` says so. Absent: both are unknown. The cost of coding is never
/// known, and 1.
std::optional<doc::Contention> contention_from_trace(const trace::Overlap& overlap,
                                                     const std::string& source,
                                                     std::vector<std::string>& notes);

}  // namespace linerate::calibrate
