// Measures the cost of K-FAC's work on this machine in four short runs. They are a small and a
// large inverse, a product for a factor, and one for a direction. Planners price factors, inverses
// and directions by these. All ranks use the mean over ranks, so that they make the same plan.
#include "linerate/torch_adapter/kfac/cost_probe.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <memory>

#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/large_product.hpp"
#include "linerate/torch_adapter/kfac/symmetric_product.hpp"
#include "linerate/torch_streams/make_tensor_clock.hpp"
#include "linerate/torch_streams/make_tensor_device.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::int64_t kSmall = 64, kLargest = 1024;

/// Least of three runs, by the clock of where tensors lie.
class LeastTime {
 public:
  explicit LeastTime(c10::Device device) : clock_(torch_streams::make_tensor_clock(device)) {
    clock_->follow(torch_streams::make_tensor_device(device, 1, {})->streams());
  }
  template <typename Work>
  double of(Work&& work) {
    double least_ns = 0;
    for (int run = 0; run < 3; ++run) {
      clock_->set(0, 0);
      work();
      clock_->set(1, 0);
      clock_->wait_for(1);
      const double taken_ns = std::max(clock_->ns_between(0, 1), 1.0);
      least_ns = run == 0 ? taken_ns : std::min(least_ns, taken_ns);
    }
    return least_ns * 1e-9;
  }

 private:
  std::unique_ptr<torch_streams::TensorClock> clock_;
};

/// Times one inverse. The matrix has different eigenvalues, because eigendecompositions take longer
/// then.
double inverse_s(std::int64_t d, const at::TensorOptions& where, InverseMethod method,
                 LeastTime& least) {
  const at::Tensor matrix =
      at::add(at::diag(at::arange(1, d + 1, where)), at::ones({d, d}, where)).unsqueeze(0);
  const at::Tensor damping = at::full({1}, 0.1, where);
  return least.of([&] {
    method == InverseMethod::eigen ? symmetric_eigen(matrix) : damped_inverses(matrix, damping);
  });
}

double cube(std::int64_t d) { return static_cast<double>(d * d * d); }

}  // namespace

/// An inverse takes a fixed time plus one that grows as the cube of the size, so two sizes give
/// both. For example 64 rows take 0.1 ms and 1024 rows take 40 ms. The cubes differ by 1.07e9, so a
/// cube costs 37 ps and the fixed part is 0.09 ms.
doc::SecondOrderCost probe_second_order(comm::Communicator& communicator,
                                        const std::vector<CurvatureBlock::Shape>& shapes,
                                        const at::TensorOptions& where, InverseMethod method) {
  const c10::NoGradGuard no_grad;
  LeastTime least(where.device());
  std::int64_t large = 2 * kSmall;
  for (const CurvatureBlock::Shape& shape : shapes)
    if (shape.kind == BlockKind::kronecker) large = std::max({large, shape.a, shape.g});
  large = std::min(large, kLargest);
  const at::Tensor rows = at::ones({large, large}, where), sum = at::zeros({large, large}, where);
  std::array<double, 4> seconds = {
      inverse_s(kSmall, where, method, least), inverse_s(large, where, method, least),
      least.of([&] { add_symmetric_product(rows, 1, sum); }),
      least.of([&] { static_cast<void>(times_transpose(rows, rows)); })};
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
