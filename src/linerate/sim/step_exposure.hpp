// How much of a Plan's predicted step is exposed communication (doc/exposed_communication.hpp).
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/steady_cycle.hpp"

namespace linerate::sim {

/// Seconds a steady step: the mean over the plan's cycle and over the ranks that
/// predicted_timeline() shows. So a comparison with that Timeline starts from the same figure.
double exposed_communication_s(const doc::Plan& plan, const cost::CostModel& model);
/// Of the Plan's steady cycle.
double exposed_communication_s(const doc::Plan& plan, const SteadyCycle& cycle);

}  // namespace linerate::sim
