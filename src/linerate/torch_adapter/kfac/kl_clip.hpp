// How far a step may go. Private to torch_adapter.
#pragma once

#include "linerate/torch_adapter/kfac/collector.hpp"

namespace torch::optim {
class Optimizer;
}

namespace linerate::torch_adapter {

/// min(1, sqrt(kappa / (lr² |q|))), q = <direction, gradient> over all preconditioned layers: the
/// step's KL divergence, about lr² nu² q / 2, stays below kappa / 2 (Ba et al. 2017). 1 for q = 0
/// and for kappa = 0; 0 if q is not finite: then no gradient counts. q and the result: f64, of no
/// dimensions.
at::Tensor kl_clip_factor(const at::Tensor& q, double learning_rate, double kappa);

/// The largest of its parameter groups.
double rate_of(const torch::optim::Optimizer& optimizer);

/// A direction is clipped for the rate of its step, so while the clip holds its length goes as one
/// over that rate. SGD multiplies what its momentum remembers by the rate of now: after a rise old
/// directions are as many times too long as the rate has grown. Their momentum is scaled back by
/// before / now, which leaves of each the update that it was: |update| <= sqrt(kappa) / (1 -
/// momentum) in the metric of the clip, under any schedule. A falling rate shortens them by itself.
/// Of the blocks' parameters; optimizers other than SGD stay as they are.
void bound_momentum(torch::optim::Optimizer& optimizer, const Blocks& blocks, double before,
                    double now);

}  // namespace linerate::torch_adapter
