// A Plan in virtual time: the steady step, its interval, and what each task did. Deterministic:
// no clock, thread or randomness.
// Thread safety: values.
#pragma once

#include <optional>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::sim {

/// What a Plan takes in virtual time.
struct SimResult {
  double step_s = 0;  // steady state, mean over the plan's cycle of variants
  // All collectives and contention at their low, at their high; absent if the cost model states no
  // error.
  std::optional<double> low_s, high_s;
  // Network time a step of the rank that communicates most, were nothing else going on.
  double communication_s = 0;
  // Of a step, as simulator.hpp says it; absent unless it was asked for.
  std::optional<double> exposed_communication_s;

  /// The step with its interval.
  doc::Bounded step() const { return {step_s, low_s, high_s}; }
};

/// What the cost model's Cluster says about contention and rank speeds is obeyed. Collectives are
/// priced at the rank count of the part that they join.
[[nodiscard]] SimResult simulate(const doc::Plan& plan, const cost::CostModel& model);

// The Timeline that a Plan would record, in virtual time.

/// One steady cycle of the plan, mode "predicted", in the shape in which training records.
///
/// - Backward has an event for each layer if the Plan has layers, else one for each gradient.
/// - Every other task stands under its doc::title_of. Tasks without duration are left out.
/// - A collective starts at its own rank's submission and ends for the whole group. `ready_ns` is
///   when its last predecessor on the rank was done.
/// - Parameter sets are the gradients that an event is about.
/// - A step lasts from the end of the computation before it to the end of its own. If steps
///   overlap, what the step before the cycle still does is there too, as step -1.
/// - It shows every rank up to 16, else one of each class.
///
/// The Workload says what one rank alone takes. Throws what validate() throws for either document.
[[nodiscard]] doc::Timeline predicted_timeline(const doc::Plan& plan, const doc::Workload& workload,
                                               const cost::CostModel& model);

}  // namespace linerate::sim
