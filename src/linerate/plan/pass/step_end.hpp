// When a step with K-FAC ends, as the searches for its order and its placement see it.
#pragma once

#include "linerate/plan/passes.hpp"

namespace linerate::plan {

/// Seconds until every direction is made and every gradient there. Of a step of K-FAC whose
/// inverses need no owners of layers, and after the passes that make it.
double step_end_s(const PassInput& input, const StepDraft& step);

}  // namespace linerate::plan
