// Inverses and eigendecompositions of factors, on a host matrix by matrix, on a device all of one
// size in a call. Success is a tensor of bools, because a device's host must not wait for it. A
// factor that fails keeps its old inverse (CurvatureBlock::take_inverses()).
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {
namespace {

/// Whether all elements are finite: x - x is 0, or a NaN if x is not finite. There are several
/// sums, because with a single one each addition would wait for the one before.
template <typename T>
bool elements_finite(const T* x, std::int64_t n) {
  constexpr std::int64_t kSums = 256 / sizeof(T);
  std::array<T, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::int64_t k = 0; k < kSums; ++k) sums[to_index(k)] += x[i + k] - x[i + k];
  for (; i < n; ++i) sums[0] += x[i] - x[i];
  return std::accumulate(sums.begin(), sums.end(), T{0}) == 0;
}

at::Tensor eye_like(const at::Tensor& symmetric) {
  return at::eye(symmetric.size(-1), symmetric.options());
}

/// The inverse by LAPACK's own routine, which takes a third of the time of a device's two products.
/// The result is symmetric bit for bit, and row by row in memory. An inverse that another rank has
/// sent lies the same way, and the order decides how products round.
at::Tensor inverse_on_host(const at::Tensor& damped) {
  if (!all_finite(damped)) return {};
  const auto [lower, info] = at::linalg_cholesky_ex(damped, /*upper=*/false,
                                                    /*check_errors=*/false);
  if (info.item<int>() != 0) return {};
  at::Tensor inverse = at::cholesky_inverse(lower);
  return all_finite(inverse) ? inverse.mT().contiguous() : at::Tensor();
}

Solved inverses_on_host(const at::Tensor& damped) {
  std::vector<at::Tensor> matrices;
  at::Tensor succeeded = at::zeros({damped.size(0)}, at::kBool);
  for (std::int64_t n = 0; n < damped.size(0); ++n) {
    const at::Tensor inverse = inverse_on_host(damped[n]);
    if (inverse.defined()) succeeded[n].fill_(true);
    matrices.push_back(inverse.defined() ? inverse : damped[n]);
  }
  return {
      matrices.size() == 1 ? matrices.front().unsqueeze(0) : at::stack(matrices), {}, succeeded};
}

/// The eigendecomposition of one matrix.
Solved eigen(const at::Tensor& symmetric) {
  const at::Tensor usable = at::isfinite(symmetric).all();  // or solvers may loop for ever
  try {
    const auto [values, vectors] = at::linalg_eigh(at::where(usable, symmetric, 0.0));
    const at::Tensor finite = at::isfinite(values).all().logical_and(at::isfinite(vectors).all());
    return {vectors.contiguous(), values.clamp_min(0), usable.logical_and(finite)};
  } catch (const c10::LinAlgError&) {  // the iteration did not converge
    return {symmetric, symmetric.select(-1, 0), at::zeros_like(usable)};
  }
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!runs_on_host(tensor)) return at::isfinite(tensor).all().item<bool>();
  const at::Tensor values = tensor.contiguous();
  bool finite = true;
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "all_finite", [&] {
    finite = elements_finite(values.const_data_ptr<scalar_t>(), values.numel());
  });
  return finite;
}

/// Finds infinities and NaNs by the largest magnitude of each tensor, in one pass.
at::Tensor which_are_finite(const std::vector<at::Tensor>& tensors) {
  if (!runs_on_host(tensors.front())) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return at::isfinite(at::stack(at::_foreach_norm(tensors, kInfinity)));
  }
  const at::Tensor finite = at::empty({static_cast<std::int64_t>(tensors.size())}, at::kBool);
  for (std::size_t k = 0; k < tensors.size(); ++k)
    finite.mutable_data_ptr<bool>()[k] = all_finite(tensors[k]);
  return finite;
}

// On a device (A + damping I) = L Lᵀ, and the inverse is the product of L^-1's transpose and L^-1.
// at::cholesky_inverse() would do, but it may look at its solver's status on the host.
Solved damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping) {
  symmetric.diagonal(0, -2, -1).add_(damping.to(symmetric.scalar_type()).unsqueeze(-1));
  if (runs_on_host(symmetric)) return inverses_on_host(symmetric);
  const auto [lower, info] = at::linalg_cholesky_ex(symmetric, /*upper=*/false,
                                                    /*check_errors=*/false);
  const at::Tensor root = at::linalg_solve_triangular(lower, eye_like(symmetric), /*upper=*/false);
  const at::Tensor matrices = at::matmul(root.mT(), root);
  const at::Tensor largest = matrices.abs().amax({1, 2});
  return {matrices, {}, info.eq(0).logical_and(at::isfinite(largest))};
}

Solved symmetric_eigen(const at::Tensor& symmetric) {
  std::vector<at::Tensor> vectors, values, succeeded;
  for (std::int64_t n = 0; n < symmetric.size(0); ++n) {
    const Solved one = eigen(symmetric[n]);
    vectors.push_back(one.matrices), values.push_back(one.values);
    succeeded.push_back(one.succeeded);
  }
  return {at::stack(vectors), at::stack(values), at::stack(succeeded)};
}

}  // namespace linerate::torch_adapter
