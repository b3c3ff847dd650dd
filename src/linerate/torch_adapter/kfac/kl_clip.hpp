// How far a step may go. Private to torch_adapter.
#pragma once

#include "linerate/torch_adapter/kfac/collector.hpp"

namespace torch::optim {
class Optimizer;
}

namespace linerate::torch_adapter {

/// The factor nu = min(1, sqrt(kappa / (lr² |q|))) for all directions, with q = <direction,
/// gradient> over all preconditioned layers. The step's KL divergence, about lr² nu² q / 2, then
/// stays below kappa / 2 (Ba et al. 2017). For example with lr = 0.1, kappa = 0.001 and q = 10, lr²
/// q is 0.1, so nu is sqrt(0.01) = 0.1.
///
/// nu is 1 for q = 0 and for kappa = 0. It is 0 if q is not finite, and then no gradient counts. q
/// and the result: scalar f64 tensors.
at::Tensor kl_clip_factor(const at::Tensor& q, double learning_rate, double kappa);

/// The largest of its parameter groups.
double rate_of(const torch::optim::Optimizer& optimizer);

/// Scales SGD's momentum back if the learning rate has risen from `before` to `now`.
///
/// A direction is clipped for the rate of its step, so while the clip holds, its length goes as one
/// over that rate. SGD multiplies its momentum by the present rate. After a rise, old directions
/// are too long by as much as the rate has grown. Multiplying the momentum by before / now makes
/// each old direction the update that it was. Then |update| <= sqrt(kappa) / (1 - momentum) in the
/// metric of the clip, under any schedule. A falling rate shortens old directions by itself.
///
/// For example the rate rises from 0.01 to 0.1. A direction in the momentum was clipped to an
/// update of 1 at rate 0.01; at 0.1 it would be an update of 10. The momentum is multiplied by 0.1,
/// so it stays 1.
///
/// Changes the blocks' parameters alone. Optimizers other than SGD stay as they are.
void bound_momentum(torch::optim::Optimizer& optimizer, const Blocks& blocks, double before,
                    double now);

}  // namespace linerate::torch_adapter
