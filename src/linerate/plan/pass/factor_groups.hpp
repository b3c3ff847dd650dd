// Which factors travel together, and when (reference: Shi, Zhang & Li 2021, SPD-KFAC).
#pragma once

#include <vector>

#include "linerate/plan/pass/factor_order.hpp"

namespace linerate::plan {

/// In their order on the network, which is agreed with the gradients'.
std::vector<FactorGroup> group_factors(const PassInput& input, const StepDraft& step,
                                       const FactorTraffic& traffic);

/// Groups leave as they get ready, not all after backward. How often a layer is used is not known
/// yet in the first step: its factors are whole once backward is over.
inline bool factors_overlap(const PassInput& input) {
  return input.curvature->kfac.overlaps_factors() && !input.first_step;
}

}  // namespace linerate::plan
