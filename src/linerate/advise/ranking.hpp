// One strategy on one network, planned and simulated; candidates judged at one bandwidth, and which
// of them wins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::advise {

/// How much run() finds out: the step alone, or also its interval, its communication and the effect
/// of shared cores. The latter take more simulations, so searches ask for the value first.
enum class Detail { value, full };

struct Outcome {
  doc::Bounded step_s;
  double communication_s = 0;  // network time a step, hidden or not
  doc::Plan plan;
  plan::Traits traits;
  std::optional<double> crowded_s;  // sim::PredictedStep
  std::vector<std::string> notes;   // on its compressor (Planner::coding_caveats)
  bool coding_is_bound = false;     // Planner::coding_is_bound()
  double coding_spread = 1;         // Planner::coding_spread()
};

/// Borrows the Workload. Pure: the same question has the same answer, whichever worker is asked.
class Evaluator {
 public:
  /// Throws UsageError or InputError when the Cluster and the options price nothing.
  Evaluator(const doc::Workload& workload, const doc::Cluster& cluster, int ranks,
            const AdviseOptions& options, OnProgress on_progress = {});

  /// Absent bandwidth: the Cluster's. Throws UsageError for what cannot be planned. `worker`: below
  /// workers(), whose memory it works in; not the same one in two calls at once.
  Outcome run(const doc::Strategy& strategy, std::optional<BytesPerSecond> bandwidth,
              std::size_t worker = 0, Detail detail = Detail::full);
  /// What Detail::full has beyond Detail::value, of a run at this bandwidth.
  void complete(Outcome& outcome, std::optional<BytesPerSecond> bandwidth, std::size_t worker = 0);
  /// How many may run at once: a thread costs more than it saves if gradients are few.
  std::size_t workers() const { return simulators_.size(); }
  /// Counts every run(), whether it throws or not.
  Progress& progress() { return progress_; }

  const doc::Workload& workload() const { return workload_; }
  const doc::Cluster& cluster() const { return model_.cluster(); }
  int ranks() const { return ranks_; }
  /// What is asked of advise().
  const AdviseOptions& options() const { return options_; }
  /// What prices the collectives at this bandwidth; absent: the Cluster's.
  cost::CostModel model_at(std::optional<BytesPerSecond> bandwidth) const;
  /// The same at the bandwidth asked about.
  cost::CostModel model() const { return model_at(options_.bandwidth); }
  /// The bandwidth asked about, else that of the network's line; per direction, 0: unknown.
  double line_bytes_per_s() const {
    return options_.bandwidth ? options_.bandwidth->value : model_.line_bytes_per_s();
  }

 private:
  const doc::Workload& workload_;
  cost::CostModel model_;
  int ranks_;
  AdviseOptions options_;
  std::vector<sim::Simulator> simulators_;  // by worker
  Progress progress_;
};

/// The time that the slowest rank computes in a step. Communication hides in no more than that.
doc::Bounded slowest_rank_s(const Evaluator& evaluator);

// Candidates judged at one bandwidth, and which of them wins.

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
             std::optional<BytesPerSecond> bandwidth, std::size_t worker = 0,
             Detail detail = Detail::full);
/// The same for each, in parallel.
std::vector<Judged> judge_all(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                              std::optional<BytesPerSecond> bandwidth,
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
                   std::optional<BytesPerSecond> bandwidth);

// Where the answer changes: by bisection over the simulator.

/// The nearest change of winner() below and above the bandwidth asked about, each as a bracket of 1
/// % width. The search goes over a factor of 1000 both ways, in steps of sqrt(2). A strategy that
/// wins only between two steps is not seen.
std::vector<doc::TurningPoint> bandwidth_turning_points(
    Evaluator& evaluator, const std::vector<doc::Strategy>& strategies);

/// How far from one rank's step still counts as full use of the network.
inline constexpr double kFullUse = 1.05;
/// How much smaller payloads, coded for nothing, bring the exchange in use within kFullUse of one
/// rank's step (Zhang et al. 2020); absent: no ratio does.
std::optional<double> ratio_for_full_use(Evaluator& evaluator);

/// Runs of the Evaluator that each of them takes at most.
std::size_t most_full_use_runs();
std::size_t most_bandwidth_runs(const std::vector<doc::Strategy>& strategies,
                                const AdviseOptions& options);

}  // namespace linerate::advise
