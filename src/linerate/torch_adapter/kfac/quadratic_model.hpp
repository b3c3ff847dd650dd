// Step length and momentum from the loss's quadratic model. Private to torch_adapter.
// Martens & Grosse 2015, sections 6.6 and 7.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/loss_kind.hpp"

namespace linerate::torch_adapter {

/// The model m(x) = gᵀVx + xᵀVᵀ(C + l2)Vx / 2 in the plane V = [direction, last update], C the
/// exact Gauss-Newton matrix of the batch. The model of all ranks' batches has the mean of their
/// curvatures; slopes and lengths come from gradients and directions that all ranks share. All f64,
/// where the parameters lie.
struct QuadraticModel {
  at::Tensor slope;      // [2]: Vᵀ gradient
  at::Tensor curvature;  // [3]: Vᵀ C V: 00, 01, 11
  at::Tensor lengths;    // [3]: Vᵀ V
};

/// x of the least m with `damping` added to C, and m(x) with l2 alone.
struct QuadraticStep {
  double direction = 0, momentum = 0;
  double change = 0;
};
QuadraticStep minimise(const QuadraticModel& model, double damping, double l2);

/// The same where values are not read: all f64 of no dimensions. Of a model that is not finite it
/// is of no use.
struct EnqueuedQuadraticStep {
  at::Tensor direction, momentum, change;
};
EnqueuedQuadraticStep enqueue_minimise(const QuadraticModel& model, const at::Tensor& damping,
                                       double l2);

/// (d output / d parameters) vectors, by two passes backward: the graph is kept. Parameters that
/// the output does not depend on, or that are frozen, count as 0.
std::vector<at::Tensor> jacobian_products(const at::Tensor& output,
                                          const std::vector<at::Tensor>& parameters,
                                          const std::vector<std::vector<at::Tensor>>& vectors);

/// The loss of a pass: what it is of, what it divides by, and which of its labels count.
struct ShownLoss {
  at::Tensor output;
  LossKind kind = LossKind::softmax_cross_entropy;
  double terms = 1;
  CountedPositions counted = {};
};
/// The sum of these, divided by `passes`.
struct ShownLosses {
  const std::vector<ShownLoss>& all;
  double passes = 1;
};

/// For one batch.
QuadraticModel quadratic_model(const ShownLosses& losses, const std::vector<at::Tensor>& parameters,
                               const std::vector<at::Tensor>& gradients,
                               const std::vector<at::Tensor>& direction,
                               const std::vector<at::Tensor>& last_update);

/// The same without a batch: its curvature is 0.
QuadraticModel plane_of(const std::vector<at::Tensor>& gradients,
                        const std::vector<at::Tensor>& direction,
                        const std::vector<at::Tensor>& last_update);

}  // namespace linerate::torch_adapter
