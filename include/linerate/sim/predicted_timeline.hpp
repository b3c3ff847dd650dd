// The Timeline that a Plan would record, in virtual time.
#pragma once

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::sim {

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
