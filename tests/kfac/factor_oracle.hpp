// What the factors of a layer should be: curvature from autograd's Jacobians, sums written out.
#pragma once

#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "torch_adapter/exact_fisher.hpp"

namespace linerate::torch_adapter {

/// f64, about uniform in [-1, 1), of the seed alone.
inline at::Tensor noise(c10::IntArrayRef sizes, std::uint64_t seed) {
  at::Tensor t = torch::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data_ptr<double>()[i] = 2 * random_unit(seed, static_cast<std::uint64_t>(i)) - 1;
  return t;
}

/// A model in f64 with weights of the seed.
template <typename Module>
void set_weights(Module& module, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  module.to(at::kDouble);
  for (at::Tensor& p : module.parameters())
    p.copy_(noise(p.sizes(), ++seed) /
            std::sqrt(static_cast<double>(p.dim() > 1 ? p[0].numel() : 1)));
}

inline torch::nn::Linear weighted(std::int64_t inputs, std::int64_t outputs, std::uint64_t seed) {
  torch::nn::Linear layer(inputs, outputs);
  set_weights(*layer, seed);
  return layer;
}

/// |ours - theirs| / |theirs|.
inline double error_of(const at::Tensor& ours, const at::Tensor& theirs) {
  return ((ours - theirs).norm() / theirs.norm()).item<double>();
}

/// The step's batch factor of a layer, [groups, d, d]; taken away.
inline at::Tensor batch_factor(KFAC& pre, std::size_t layer, FactorSide side) {
  CurvatureBlock& block = *KfacInside::preconditioner(pre).blocks().at(layer);
  return unpack_triangles(block.batch_factor(side), block.shape().groups, block.dim(side));
}

/// G x A of every group, [groups, g a, g a]; taken away.
inline std::vector<at::Tensor> batch_curvature(KFAC& pre, std::size_t layer) {
  const at::Tensor a = batch_factor(pre, layer, FactorSide::a);
  const at::Tensor g = batch_factor(pre, layer, FactorSide::g);
  std::vector<at::Tensor> blocks;
  for (std::int64_t q = 0; q < a.size(0); ++q) blocks.push_back(at::kron(g[q], a[q]));
  return blocks;
}

/// d scalar / d [W b], [outputs, inputs + 1]; of W alone where `bias` is undefined.
inline at::Tensor joint_gradient(const at::Tensor& scalar, const at::Tensor& weight,
                                 const at::Tensor& bias) {
  if (!bias.defined())
    return torch::autograd::grad({scalar}, {weight}, {}, /*retain_graph=*/true)[0].reshape(
        {weight.size(0), -1});
  const auto g = torch::autograd::grad({scalar}, {weight, bias}, {}, /*retain_graph=*/true);
  return torch::cat({g[0].reshape({weight.size(0), -1}), g[1].unsqueeze(1)}, 1);
}

/// Jᵀ H J of a layer: J the Jacobian of the output, H the Hessian of the loss as it is reduced.
inline at::Tensor gauss_newton(const at::Tensor& output,
                               const std::function<at::Tensor(const at::Tensor&)>& loss,
                               const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor z = output.flatten();
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < z.numel(); ++i)
    rows.push_back(joint_gradient(z[i], weight, bias).flatten());
  const at::Tensor jacobian = torch::stack(rows);
  const at::Tensor free = output.detach().requires_grad_();
  const at::Tensor slope =
      torch::autograd::grad({loss(free)}, {free}, {}, true, /*create_graph=*/true)[0].flatten();
  std::vector<at::Tensor> bends;
  for (std::int64_t i = 0; i < slope.numel(); ++i)
    bends.push_back(torch::autograd::grad({slope[i]}, {free}, {}, true)[0].flatten());
  return jacobian.t().matmul(torch::stack(bends)).matmul(jacobian);
}

inline KfacOptions plain_options(LossAverage::Over over, Fisher fisher = Fisher::monte_carlo) {
  return {.loss_average = LossAverage{over}, .fisher = fisher, .inverse_interval = 1, .kl_clip = 0};
}

}  // namespace linerate::torch_adapter
