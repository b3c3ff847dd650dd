#include "linerate/torch_adapter/kfac/quadratic_model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "linerate/torch_adapter/kfac/loss_curvature.hpp"

namespace linerate::torch_adapter {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor product_of(const at::Tensor& x, const at::Tensor& y) { return (x * y).sum(at::kDouble); }

at::Tensor sum_of_products(const Tensors& x, const Tensors& y) {
  at::Tensor sum = product_of(x[0], y[0]);
  for (std::size_t i = 1; i < x.size(); ++i) sum.add_(product_of(x[i], y[i]));
  return sum;
}

/// At (x, y), of the symmetric matrix with these entries: numbers, or what a device computes.
template <typename Number>
Number quadratic(const std::array<Number, 3>& m, const Number& x, const Number& y) {
  return m[0] * x * x + 2 * m[1] * x * y + m[2] * y * y;
}

template <std::size_t kNumbers>
std::array<double, kNumbers> numbers_of(const at::Tensor& values) {
  const at::Tensor here = values.contiguous();
  std::array<double, kNumbers> numbers{};
  std::copy_n(here.const_data_ptr<double>(), kNumbers, numbers.begin());
  return numbers;
}

template <std::size_t kNumbers>
std::array<at::Tensor, kNumbers> entries_of(const at::Tensor& values) {
  std::array<at::Tensor, kNumbers> entries;
  for (std::size_t i = 0; i < kNumbers; ++i)
    entries[i] = values.select(0, static_cast<std::int64_t>(i));
  return entries;
}

/// [3], of the terms' sum: products[i] is the Jacobian times the plane's i-th vector.
at::Tensor curvature_of(const ShownLoss& loss, const Tensors& products) {
  const c10::NoGradGuard no_grad;
  const auto bend = [&](std::size_t i, std::size_t j) {
    const at::Tensor bent = hessian_product(loss.output, loss.kind, products[j]);
    return product_of(products[i], loss.counted.masked(bent));
  };
  const at::Tensor first = bend(0, 0);
  const bool is_plane = products.size() > 1;
  return at::stack({first, is_plane ? bend(0, 1) : at::zeros_like(first),
                    is_plane ? bend(1, 1) : at::zeros_like(first)});
}

/// Of parallel vectors, or without a last update, the determinant is roundings at most: the step
/// goes along the direction alone.
constexpr double kParallel = 1e-14;

}  // namespace

// u -> Jᵀu is linear: the derivative of its product with v by u is Jv, whatever u is. (Forward-mode
// products would need the model's parameters replaced while it runs.)
Tensors jacobian_products(const at::Tensor& output, const Tensors& parameters,
                          const std::vector<Tensors>& vectors) {
  const c10::AutoGradMode with_grad(true);
  const at::Tensor u = at::zeros_like(output).detach().requires_grad_();
  std::vector<std::size_t> trained;
  Tensors inputs;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad()) trained.push_back(i), inputs.push_back(parameters[i]);
  const Tensors pulled = torch::autograd::grad({output}, inputs, {u}, /*retain_graph=*/true,
                                               /*create_graph=*/true, /*allow_unused=*/true);
  Tensors products;
  for (const Tensors& v : vectors) {
    Tensors roots, with;
    for (std::size_t i = 0; i < pulled.size(); ++i) {
      if (!pulled[i].defined()) continue;
      roots.push_back(pulled[i]);
      with.push_back(v[trained[i]]);
    }
    products.push_back(torch::autograd::grad(roots, {u}, with, /*retain_graph=*/true).front());
  }
  return products;
}

QuadraticModel plane_of(const Tensors& gradients, const Tensors& direction,
                        const Tensors& last_update) {
  const c10::NoGradGuard no_grad;
  const at::Tensor slope = sum_of_products(direction, gradients);
  const at::Tensor length = sum_of_products(direction, direction);
  const at::Tensor none = at::zeros_like(slope), no_curvature = at::zeros({3}, slope.options());
  if (last_update.empty())
    return {at::stack({slope, none}), no_curvature, at::stack({length, none, none})};
  return {at::stack({slope, sum_of_products(last_update, gradients)}), no_curvature,
          at::stack({length, sum_of_products(direction, last_update),
                     sum_of_products(last_update, last_update)})};
}

QuadraticModel quadratic_model(const ShownLosses& losses, const Tensors& parameters,
                               const Tensors& gradients, const Tensors& direction,
                               const Tensors& last_update) {
  std::vector<Tensors> plane{direction};
  if (!last_update.empty()) plane.push_back(last_update);
  QuadraticModel model = plane_of(gradients, direction, last_update);
  for (const ShownLoss& loss : losses.all)
    if (loss.terms > 0)
      model.curvature =
          model.curvature + curvature_of(loss, jacobian_products(loss.output, parameters, plane))
                                .div_(loss.terms * losses.passes);
  return model;
}

QuadraticStep minimise(const QuadraticModel& model, double damping, double l2) {
  const auto slope = numbers_of<2>(model.slope);
  const auto curvature = numbers_of<3>(model.curvature), lengths = numbers_of<3>(model.lengths);
  std::array<double, 3> m{};
  for (std::size_t i = 0; i < 3; ++i) m[i] = curvature[i] + (damping + l2) * lengths[i];
  QuadraticStep step;
  const double determinant = m[0] * m[2] - m[1] * m[1];
  if (determinant > kParallel * m[0] * m[2]) {
    step.direction = -(m[2] * slope[0] - m[1] * slope[1]) / determinant;
    step.momentum = -(m[0] * slope[1] - m[1] * slope[0]) / determinant;
  } else if (m[0] > 0) {
    step.direction = -slope[0] / m[0];
  }
  const double x = step.direction, y = step.momentum;
  step.change = slope[0] * x + slope[1] * y +
                (quadratic(curvature, x, y) + l2 * quadratic(lengths, x, y)) / 2;
  return step;
}

EnqueuedQuadraticStep enqueue_minimise(const QuadraticModel& model, const at::Tensor& damping,
                                       double l2) {
  const auto slope = entries_of<2>(model.slope);
  const auto m = entries_of<3>(model.curvature + (damping + l2) * model.lengths);
  const at::Tensor determinant = m[0] * m[2] - m[1] * m[1];
  const at::Tensor is_plane = determinant.gt(kParallel * m[0] * m[2]);
  const at::Tensor alone = at::where(m[0].gt(0), -slope[0] / m[0], 0.0);
  const at::Tensor x =
      at::where(is_plane, -(m[2] * slope[0] - m[1] * slope[1]) / determinant, alone);
  const at::Tensor y = at::where(is_plane, -(m[0] * slope[1] - m[1] * slope[0]) / determinant, 0.0);
  const at::Tensor bend = quadratic(entries_of<3>(model.curvature), x, y) +
                          l2 * quadratic(entries_of<3>(model.lengths), x, y);
  return {x, y, slope[0] * x + slope[1] * y + bend / 2};
}

}  // namespace linerate::torch_adapter
