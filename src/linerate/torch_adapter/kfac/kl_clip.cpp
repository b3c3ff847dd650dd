#include "linerate/torch_adapter/kfac/kl_clip.hpp"

#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>

namespace linerate::torch_adapter {

std::optional<double> kl_clip_factor(double q, double learning_rate, double kappa) {
  if (!std::isfinite(q)) return std::nullopt;
  const double divergence = learning_rate * learning_rate * std::abs(q);
  if (kappa <= 0 || divergence == 0) return 1;
  return std::min(1.0, std::sqrt(kappa / divergence));
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
