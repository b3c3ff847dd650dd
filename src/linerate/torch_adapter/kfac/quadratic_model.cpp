#include "linerate/torch_adapter/kfac/quadratic_model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "linerate/torch_adapter/kfac/loss_curvature.hpp"

namespace linerate::torch_adapter {
namespace {

using Tensors = std::vector<at::Tensor>;

double product_of(const at::Tensor& x, const at::Tensor& y) {
  return (x * y).sum(at::kDouble).item<double>();
}

double sum_of_products(const Tensors& x, const Tensors& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += product_of(x[i], y[i]);
  return sum;
}

double quadratic(const std::array<double, 3>& m, double x, double y) {
  return m[0] * x * x + 2 * m[1] * x * y + m[2] * y * y;
}

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
  QuadraticModel model;
  model.slope[0] = sum_of_products(direction, gradients);
  model.lengths[0] = sum_of_products(direction, direction);
  if (last_update.empty()) return model;
  model.slope[1] = sum_of_products(last_update, gradients);
  model.lengths[1] = sum_of_products(direction, last_update);
  model.lengths[2] = sum_of_products(last_update, last_update);
  return model;
}

QuadraticModel quadratic_model(const at::Tensor& output, LossKind loss, const CountedTerms& terms,
                               const Tensors& parameters, const Tensors& gradients,
                               const Tensors& direction, const Tensors& last_update) {
  std::vector<Tensors> plane{direction};
  if (!last_update.empty()) plane.push_back(last_update);
  const Tensors products = jacobian_products(output, parameters, plane);
  const c10::NoGradGuard no_grad;
  QuadraticModel model = plane_of(gradients, direction, last_update);
  const auto bend = [&](std::size_t i, std::size_t j) {
    const at::Tensor bent = hessian_product(output, loss, products[j]);
    return product_of(products[i], terms.counted.masked(bent)) / terms.terms;
  };
  model.curvature[0] = bend(0, 0);
  if (plane.size() == 1) return model;
  model.curvature[1] = bend(0, 1);
  model.curvature[2] = bend(1, 1);
  return model;
}

QuadraticStep minimise(const QuadraticModel& model, double damping, double l2) {
  std::array<double, 3> m{};
  for (std::size_t i = 0; i < 3; ++i) m[i] = model.curvature[i] + (damping + l2) * model.lengths[i];
  QuadraticStep step;
  const double determinant = m[0] * m[2] - m[1] * m[1];
  // Parallel vectors, or no last update: along the direction alone.
  if (determinant > 1e-14 * m[0] * m[2]) {
    step.direction = -(m[2] * model.slope[0] - m[1] * model.slope[1]) / determinant;
    step.momentum = -(m[0] * model.slope[1] - m[1] * model.slope[0]) / determinant;
  } else if (m[0] > 0) {
    step.direction = -model.slope[0] / m[0];
  }
  const double x = step.direction, y = step.momentum;
  step.change = model.slope[0] * x + model.slope[1] * y +
                (quadratic(model.curvature, x, y) + l2 * quadratic(model.lengths, x, y)) / 2;
  return step;
}

}  // namespace linerate::torch_adapter
