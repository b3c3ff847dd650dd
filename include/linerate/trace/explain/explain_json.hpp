// The answer of `linerate explain` as JSON.
#pragma once

#include <string>

#include "linerate/trace/explain/breakdown.hpp"
#include "linerate/trace/explain/verdict.hpp"

namespace linerate::trace {

/// The fixed keys steps_s, compute_busy_s, communication_busy_s, overlap_s,
/// exposed_communication_s, collective_bytes, gradient_bytes, collectives, verdict, confidence, and
/// more. Unknown is null.
[[nodiscard]] std::string explain_json(const Breakdown& breakdown, const Verdict& verdict);

}  // namespace linerate::trace
