// Searches strategies and their options over the simulator. Says what to do about the network:
// change to a strategy, do nothing, or that the predictions do not tell.
#pragma once

#include "linerate/advise/advise_options.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::advise {

/// Ranks strategies that take the same steps as the current one, and others whose steps-to-target
/// ratio is known, by step x ratio. The verdict is `do nothing` if the current strategy is the best
/// or within least_gain of it. It is `inconclusive` if the best gains more, but not at every end of
/// its intervals. Otherwise it is `change`. Deterministic. Throws UsageError and InputError.
[[nodiscard]] doc::Advice advise(const doc::Workload& workload, const doc::Cluster& cluster,
                                 const AdviseOptions& options);

}  // namespace linerate::advise
