// The exact Fisher information, an oracle: of every column of a root of the loss's Hessian. What
// trains draws labels instead (KFAC::sample_fisher).
#pragma once

#include <torch/types.h>

#include <numbers>
#include <vector>

#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

/// Columns whose outer products add up to the terms' Hessians, each shaped like the output z and of
/// every sample and position at once: one a class, or one an element of a sample's output.
inline std::vector<at::Tensor> hessian_columns(const at::Tensor& output, LossKind kind) {
  const at::Tensor z = output.detach();
  std::vector<at::Tensor> columns;
  if (kind == LossKind::softmax_cross_entropy) {
    const at::Tensor p = torch::softmax(z, 1);
    for (std::int64_t c = 0; c < z.size(1); ++c) {
      const at::Tensor root = p.narrow(1, c, 1).sqrt();
      at::Tensor column = p * root;
      column.narrow(1, c, 1).sub_(root);
      columns.push_back(column);
    }
    return columns;
  }
  at::Tensor root = torch::ones_like(z);
  if (kind == LossKind::squared_error) root = torch::full_like(z, std::numbers::sqrt2);
  if (kind == LossKind::binary_cross_entropy) {
    const at::Tensor p = torch::sigmoid(z);
    root = (p * (1 - p)).sqrt();
  }
  const at::Tensor by_sample = root.reshape({z.size(0), -1});
  for (std::int64_t j = 0; j < by_sample.size(1); ++j) {
    at::Tensor column = torch::zeros_like(by_sample);
    column.select(1, j).copy_(by_sample.select(1, j));
    columns.push_back(column.view(z.sizes()));
  }
  return columns;
}

/// In place of sample_fisher(), with fisher = monte_carlo.
inline void exact_fisher(KFAC& pre, const at::Tensor& output, LossKind kind) {
  const torch::NoGradGuard no_grad;
  KfacInside::preconditioner(pre).collector().backward_from(output, hessian_columns(output, kind));
}

}  // namespace linerate::torch_adapter
