// Private: buckets of steps that train several models in turn.
#pragma once

#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

/// The buckets of each turn of a step (Gradient::turn), cut as those of a Workload of its own. No
/// bucket holds gradients of two turns, and limits begin anew. `first_step`: as
/// Exchange::fuse_first_step.
void fuse_turns(const Exchange& exchange, const FusionInput& input, bool first_step,
                const Fusion& out);

}  // namespace linerate::plan
