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
      at::Tensor column = p.clone();
      column.select(1, c).sub_(1);
      columns.push_back(column * p.narrow(1, c, 1).sqrt());
    }
    return columns;
  }
  at::Tensor root = torch::ones_like(z);
  if (kind == LossKind::squared_error) root = torch::full_like(z, std::numbers::sqrt2);
  if (kind == LossKind::binary_cross_entropy) {
    const at::Tensor p = torch::sigmoid(z);
    root = (p * (1 - p)).sqrt();
  }
  for (const at::Tensor& column : torch::diag_embed(root.reshape({z.size(0), -1})).unbind(1))
    columns.push_back(column.reshape(z.sizes()));
  return columns;
}

/// In place of sample_fisher(), with fisher = monte_carlo.
inline void exact_fisher(KFAC& pre, const at::Tensor& output, LossKind kind) {
  const torch::NoGradGuard no_grad;
  KfacInside::preconditioner(pre).collector().backward_from(output, hessian_columns(output, kind));
}

}  // namespace linerate::torch_adapter
