// What the best possible form of each remedy would give.
#pragma once

#include <optional>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"

namespace linerate::advise {

/// The ceiling of the job as it was recorded (measured_step()), as `linerate explain` says it.
std::optional<doc::Ceiling> recorded_ceiling(const Evaluator& evaluator,
                                             const AdviseOptions& options);

/// recorded_ceiling(), and for the current strategy: infinite bandwidth, perfect overlap, and, if
/// the Cluster states them, no late ranks and no contention. For each codec, with the exchange that
/// makes most of it, free encoding and decoding; without a codec, for one of ratio 10,000. No real
/// form of the remedy can do better.
std::vector<doc::Ceiling> ceilings(Evaluator& evaluator, const Outcome& current,
                                   const std::vector<doc::Strategy>& strategies,
                                   const AdviseOptions& options);

/// Runs of the Evaluator that they take at most.
std::size_t most_ceiling_runs(const std::vector<doc::Strategy>& strategies,
                              const doc::Strategy& current);

// Ranks that hold the others up, and what a job without them gains.

/// Those of the Cluster's rank_speeds that are slower than the Workload says, slowest first, at
/// most four. Their time is in every candidate; here is the current strategy without them.
std::vector<doc::Straggler> stragglers(Evaluator& evaluator, const Outcome& current,
                                       const AdviseOptions& options);

/// The Advice's sentence begins with them if a job without them gains least_gain and more than the
/// fastest candidate does.
void lead_with_stragglers(doc::Advice& advice, const doc::Candidate& current, double least_gain);

}  // namespace linerate::advise
