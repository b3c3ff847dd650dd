// Simulates one Plan after the other.
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/steady_cycle.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

/// Simulates plans, keeping its memory between calls.
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

/// SimResult::communication_s in two, each with its interval if its prices have one.
struct NetworkTime {
  doc::Bounded waited_for_s;  // other_collectives: computation stands still, whatever is planned
  doc::Bounded overlaps_s;    // the rest, which computation may hide
};
[[nodiscard]] NetworkTime network_time(const doc::Plan& plan, const cost::CostModel& model);

}  // namespace linerate::sim
