// Candidates judged at one bandwidth, and which of them wins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"

namespace linerate::advise {

/// A candidate with what its reason is made from.
struct Judged {
  doc::Candidate candidate;
  doc::Strategy strategy;
  std::optional<Outcome> outcome;  // absent: failed

  /// Its coding is known by a bound alone: the step may be longer.
  bool coding_is_bound() const { return outcome && outcome->coding_is_bound; }
  bool changes_convergence() const { return outcome && outcome->traits.changes_convergence; }
};

/// Plans, simulates and weighs one strategy; never throws for what cannot be planned (standing
/// `failed`). The reason stays empty.
Judged judge(Evaluator& evaluator, const doc::Strategy& strategy,
             std::optional<BytesPerSecond> bandwidth, const AdviseOptions& options,
             std::size_t worker = 0, Detail detail = Detail::full);
/// The same for each, in parallel.
std::vector<Judged> judge_all(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                              std::optional<BytesPerSecond> bandwidth, const AdviseOptions& options,
                              Detail detail = Detail::full);

/// Applies `of` to the values and to both ends. If one of the two lacks an end, its value stands
/// in.
template <typename Of>
doc::Bounded by_ends(const doc::Bounded& a, const doc::Bounded& b, Of of) {
  doc::Bounded both{of(a.value, b.value)};
  if (a.low || b.low) both.low = of(a.low_or_value(), b.low_or_value());
  if (a.high || b.high) both.high = of(a.high_or_value(), b.high_or_value());
  return both;
}

/// Order of the list: standing, then time to target (or step) ascending; equal ones as given.
bool before(const doc::Candidate& a, const doc::Candidate& b);

/// a's time to target over b's. The error of a collective's cost is the same for both. So low ends
/// are compared with low ends, and high ends with high ends. Ratios of steps are independent. An
/// end is known if that of any of them is. Both must be ranked.
doc::Bounded over(const doc::Candidate& a, const doc::Candidate& b);

/// do_nothing, inconclusive or change, by the rule of advise(). Both must be ranked.
doc::AdviceVerdict verdict_of(const doc::Candidate& current, const doc::Candidate& best,
                              double least_gain);

/// Those of the strategies that winner() may name.
std::vector<doc::Strategy> rankable(std::vector<doc::Strategy> strategies,
                                    const AdviseOptions& options);

/// The strategy to use, of those judged in search order. It is the current one while the verdict is
/// not `change`. Otherwise it is the first that is within least_gain of the best and itself worth
/// the change. Empty: none is ranked.
std::string winner(const std::vector<Judged>& judged, const AdviseOptions& options);
/// The same at this bandwidth, in parallel, with only the intervals that the answer needs.
std::string winner(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                   std::optional<BytesPerSecond> bandwidth, const AdviseOptions& options);

// Where the answer changes: by bisection over the simulator.

/// The nearest change of winner() below and above the bandwidth asked about, each as a bracket of 1
/// % width. The search goes over a factor of 1000 both ways, in steps of sqrt(2). A strategy that
/// wins only between two steps is not seen.
std::vector<doc::TurningPoint> bandwidth_turning_points(
    Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
    const AdviseOptions& options);

/// How far from one rank's step still counts as full use of the network.
inline constexpr double kFullUse = 1.05;
/// How much smaller payloads, coded for nothing, bring the exchange in use within kFullUse of one
/// rank's step (Zhang et al. 2020); absent: no ratio does.
std::optional<double> ratio_for_full_use(Evaluator& evaluator, const AdviseOptions& options);

/// Runs of the Evaluator that each of them takes at most.
std::size_t most_full_use_runs();
std::size_t most_bandwidth_runs(const std::vector<doc::Strategy>& strategies,
                                const AdviseOptions& options);

}  // namespace linerate::advise
