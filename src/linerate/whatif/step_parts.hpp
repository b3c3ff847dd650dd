// Where the time of a predicted step with K-FAC goes.
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/step_parts.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::whatif {

/// Exposed seconds of each part by exclusion, summing to `step_s`, the predicted step of the whole
/// Plan.
doc::StepParts step_parts(const doc::Plan& plan, const cost::CostModel& model, double step_s,
                          sim::Simulator& simulator);

}  // namespace linerate::whatif
