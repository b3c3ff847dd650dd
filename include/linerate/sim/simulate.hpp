// A Plan in virtual time: the steady step, its interval, and what each task did. Deterministic:
// no clock, thread or randomness.
// Thread safety: values.
#pragma once

#include <optional>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/bounded.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

/// What a Plan takes in virtual time.
struct SimResult {
  double step_s = 0;  // steady state, mean over the plan's cycle of variants
  // All collectives and contention at their low, at their high; absent if the cost model states no
  // error.
  std::optional<double> low_s, high_s;
  // Network time a step of the rank that communicates most, were nothing else going on.
  double communication_s = 0;
  // Of a step, as step_exposure.hpp says it; absent unless it was asked for.
  std::optional<double> exposed_communication_s;

  /// The step with its interval.
  doc::Bounded step() const { return {step_s, low_s, high_s}; }
};

/// What the cost model's Cluster says about contention and rank speeds is obeyed. Collectives are
/// priced at the rank count of the part that they join.
[[nodiscard]] SimResult simulate(const doc::Plan& plan, const cost::CostModel& model);

}  // namespace linerate::sim
