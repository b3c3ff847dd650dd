// Where the answer changes: by bisection over the simulator.
#pragma once

#include <optional>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"

namespace linerate::advise {

/// The nearest change of winner() below and above the bandwidth asked about, each as a bracket of 1
/// % width. The search goes over a factor of 1000 both ways, in steps of sqrt(2). A strategy that
/// wins only between two steps is not seen.
std::vector<doc::TurningPoint> bandwidth_turning_points(
    Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
    const AdviseOptions& options);

/// For each codec the ratio at which its step becomes shorter than `best_step_s` by least_gain. The
/// codec keeps its speed and takes the exchange that makes most of it. Steps to the target do not
/// count: below this ratio the codec loses whatever they are. A codec is absent from the list if no
/// ratio up to 10,000 is enough, or if 1 is; `notes` then says which.
std::vector<doc::TurningPoint> ratio_turning_points(Evaluator& evaluator,
                                                    const std::vector<doc::Strategy>& strategies,
                                                    const doc::Candidate& best,
                                                    const AdviseOptions& options,
                                                    std::vector<std::string>& notes);

/// How far from one rank's step still counts as full use of the network.
inline constexpr double kFullUse = 1.05;
/// How much smaller payloads, coded for nothing, bring the exchange in use within kFullUse of one
/// rank's step (Zhang et al. 2020); absent: no ratio does.
std::optional<double> ratio_for_full_use(Evaluator& evaluator, const AdviseOptions& options);

/// Runs of the Evaluator that each of them takes at most.
std::size_t most_full_use_runs();
std::size_t most_bandwidth_runs(const std::vector<doc::Strategy>& strategies,
                                const AdviseOptions& options);
std::size_t most_ratio_runs(const std::vector<doc::Strategy>& strategies,
                            const AdviseOptions& options);

}  // namespace linerate::advise
