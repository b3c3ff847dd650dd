// A Plan in virtual time: the steady step, its interval, and what each task did. Deterministic:
// no clock, thread or randomness.
#pragma once

#include <optional>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/bounded.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/steady_cycle.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

struct SimResult {
  double step_s = 0;  // steady state, mean over the plan's cycle of variants
  // All collectives at their low, at their high; absent if the cost model states no error.
  std::optional<double> low_s, high_s;
  // Network time a step of the rank that communicates most, were nothing else going on.
  double communication_s = 0;
  // Of a step, as step_exposure.hpp says it; absent unless it was asked for.
  std::optional<double> exposed_communication_s;

  doc::Bounded step() const { return {step_s, low_s, high_s}; }
};

/// Simulates plans, keeping its memory between calls. What the cost model's Cluster says about
/// contention and rank speeds is obeyed. Collectives are priced at the rank count of the part that
/// they join.
class Simulator {
 public:
  SimResult simulate(const doc::Plan& plan, const cost::CostModel& model);
  /// Finds exposed communication too; steps that do not overlap are run once for both.
  SimResult simulate_exposure(const doc::Plan& plan, const cost::CostModel& model);

  /// SimResult::step_s alone, of the steady cycle: the inner loop of sweeps.
  double step_s(const doc::Plan& plan, const cost::CostModel& model);

 private:
  SimResult finish(const doc::Plan& plan, Prices& prices, SimResult result);

  TaskTimes times_;
  Unrolled unrolled_;
  SteadyCycle cycle_;
};

/// Simulator().simulate(plan, model).
SimResult simulate(const doc::Plan& plan, const cost::CostModel& model);

}  // namespace linerate::sim
