// What a hook on the exchange of gradients costs and saves. It sends fewer bytes. In return it
// encodes and decodes, and often waits for each bucket while backward could have gone on.
#pragma once

#include <optional>

#include "linerate/trace/explain/ceilings.hpp"
#include "linerate/trace/explain/hook_cost.hpp"
#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Nothing if gradients are exchanged whole, or if their sizes, their exchanges or the calls around
/// them are unknown.
std::optional<HookCost> hook_cost(const Job& job, const Program& program, const RemedyGains& gains);

}  // namespace linerate::trace
