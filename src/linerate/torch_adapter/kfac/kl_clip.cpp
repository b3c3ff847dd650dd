#include "linerate/torch_adapter/kfac/kl_clip.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <algorithm>

namespace linerate::torch_adapter {

at::Tensor kl_clip_factor(const at::Tensor& q, double learning_rate, double kappa) {
  const at::Tensor finite = at::isfinite(q).to(at::kDouble);
  if (kappa <= 0) return finite;
  const at::Tensor divergence = q.abs().mul(learning_rate * learning_rate);
  // A divergence of 0 gives an infinite root, which is cut off at 1.
  const at::Tensor nu = divergence.reciprocal().mul(kappa).sqrt().clamp_max(1);
  return at::where(finite.gt(0), nu, finite);
}

double rate_of(const torch::optim::Optimizer& optimizer) {
  double rate = 0;
  for (const auto& group : optimizer.param_groups())
    rate = std::max(rate, group.options().get_lr());
  return rate;
}

void bound_momentum(torch::optim::Optimizer& optimizer, const Blocks& blocks, double before,
                    double now) {
  if (!(before > 0 && now > before) || !dynamic_cast<torch::optim::SGD*>(&optimizer)) return;
  const c10::NoGradGuard no_grad;
  for (const auto& block : blocks)
    for (const at::Tensor& parameter : {block->layer().weight, block->layer().bias}) {
      if (!parameter.defined()) continue;
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      auto& state = static_cast<torch::optim::SGDParamState&>(*found->second);
      if (state.momentum_buffer().defined()) state.momentum_buffer().mul_(before / now);
    }
}

}  // namespace linerate::torch_adapter
