// How far a step may go.
#pragma once

#include <optional>

namespace linerate::torch_adapter {

/// min(1, sqrt(kappa / (lr² |q|))), q = <direction, gradient> over all preconditioned layers: the
/// step's KL divergence, about lr² nu² q / 2, stays below kappa / 2 (Ba et al. 2017). 1 for q = 0
/// and for kappa = 0; absent if q is not finite: such a step is skipped.
std::optional<double> kl_clip_factor(double q, double learning_rate, double kappa);

}  // namespace linerate::torch_adapter
