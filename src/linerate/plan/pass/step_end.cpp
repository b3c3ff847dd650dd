#include "linerate/plan/pass/step_end.hpp"

#include "linerate/plan/pass/factor_order.hpp"

namespace linerate::plan {

// A step that updates no factors has no arrivals of its own, so those of its gradients are made
// here.
double step_end_s(const PassInput& input, const StepDraft& step) {
  const Curvature& curvature = *input.curvature;
  if (input.update.factors) return curvature.done_s(input.cost, step.arrivals, step.placement);
  const FactorTraffic gradients(input, step, {});
  return curvature.done_s(input.cost, arrivals_of(input, step, gradients, {}), {});
}

}  // namespace linerate::plan
