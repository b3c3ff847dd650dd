// Ranks that hold the others up, and what a job without them gains.
#pragma once

#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"

namespace linerate::advise {

/// Those of the Cluster's rank_speeds that are slower than the Workload says, slowest first, at
/// most four. Their time is in every candidate; here is the current strategy without them.
std::vector<doc::Straggler> stragglers(Evaluator& evaluator, const Outcome& current,
                                       const AdviseOptions& options);

/// The Advice's sentence begins with them if a job without them gains least_gain and more than the
/// fastest candidate does.
void lead_with_stragglers(doc::Advice& advice, const doc::Candidate& current, double least_gain);

}  // namespace linerate::advise
