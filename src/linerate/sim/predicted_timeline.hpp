// The Timeline that a Plan would leave behind, in virtual time.
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::sim {

/// One steady cycle of the plan, mode "predicted", in the shape in which training records: a
/// backward event per layer where the Workload names layers (its gradients' tasks joined), else per
/// gradient; an event per bucket with `ready_ns`, the moment its last gradient was there. Parameter
/// sets are the gradients an event is about. Every rank up to 16, else one of each class.
doc::Timeline predicted_timeline(const doc::Plan& plan, const doc::Workload& workload,
                                 const cost::CostModel& model);

}  // namespace linerate::sim
