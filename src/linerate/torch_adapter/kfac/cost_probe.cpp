#include "linerate/torch_adapter/kfac/cost_probe.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

#include "linerate/core/clock.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/large_product.hpp"
#include "linerate/torch_adapter/kfac/symmetric_product.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::int64_t kSmall = 64, kLargest = 1024;

template <typename Work>
double least_s(Work&& work) {
  std::int64_t least = 0;
  for (int run = 0; run < 3; ++run) {
    const std::int64_t start = steady_ns();
    work();
    const std::int64_t taken = std::max<std::int64_t>(steady_ns() - start, 1);
    least = run == 0 ? taken : std::min(least, taken);
  }
  return static_cast<double>(least) * 1e-9;
}

/// Eigendecompositions take longer if eigenvalues differ.
double inverse_s(std::int64_t d, at::ScalarType dtype, InverseMethod method) {
  const at::Tensor matrix = at::add(at::diag(at::arange(1, d + 1, dtype)), at::ones({d, d}, dtype));
  return least_s([&] {
    if (method == InverseMethod::eigen)
      static_cast<void>(symmetric_eigen(matrix));
    else
      static_cast<void>(damped_inverse(matrix, 0.1));
  });
}

double cube(std::int64_t d) { return static_cast<double>(d * d * d); }

}  // namespace

doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<CurvatureBlock::Shape>& shapes,
                                        at::ScalarType dtype, InverseMethod method) {
  const c10::NoGradGuard no_grad;
  std::int64_t large = 2 * kSmall;
  for (const CurvatureBlock::Shape& shape : shapes)
    if (shape.kind == BlockKind::kronecker) large = std::max({large, shape.a, shape.g});
  large = std::min(large, kLargest);
  const at::Tensor rows = at::ones({large, large}, dtype), sum = at::zeros({large, large}, dtype);
  std::array<double, 4> seconds = {
      inverse_s(kSmall, dtype, method), inverse_s(large, dtype, method),
      least_s([&] { add_symmetric_product(rows, 1, sum); }),
      least_s([&] { static_cast<void>(times_transpose(rows, rows)); })};
  communicator.all_reduce(comm::buffer(seconds), comm::Reduce::sum, "costs of second-order steps")
      ->wait();
  for (double& s : seconds) s /= communicator.size();
  doc::SecondOrderCost cost;
  cost.inverse_s_per_cube = std::max(0.0, (seconds[1] - seconds[0]) / (cube(large) - cube(kSmall)));
  cost.inverse_fixed_s = std::max(0.0, seconds[0] - cost.inverse_s_per_cube * cube(kSmall));
  cost.factor_flops_per_s = 2 * cube(large) / seconds[2];
  cost.precondition_flops_per_s = 2 * cube(large) / seconds[3];
  return cost;
}

}  // namespace linerate::torch_adapter
