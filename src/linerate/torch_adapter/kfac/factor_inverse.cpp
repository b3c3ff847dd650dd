#include "linerate/torch_adapter/kfac/factor_inverse.hpp"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <numeric>

#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr int kMoreDamping = 3;  // times 10 each

/// Absent if the matrix is not positive definite in its own precision.
std::optional<at::Tensor> cholesky_inverse(const at::Tensor& symmetric, double damping) {
  at::Tensor damped = symmetric.clone();
  damped.diagonal().add_(damping);
  const auto [lower, info] = at::linalg_cholesky_ex(damped, /*upper=*/false,
                                                    /*check_errors=*/false);
  if (info.item<int>() != 0) return std::nullopt;
  at::Tensor inverse = at::cholesky_inverse(lower);
  if (!all_finite(inverse)) return std::nullopt;
  return inverse;
}

/// x - x is 0, or NaN for what is not finite. Sums side by side: one alone would wait for each
/// addition before the next.
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

std::optional<SymmetricEigen> eigen(const at::Tensor& symmetric) {
  try {
    const auto [values, vectors] = at::linalg_eigh(symmetric);
    if (!all_finite(values) || !all_finite(vectors)) return std::nullopt;
    return SymmetricEigen{vectors.contiguous(), values.clamp_min(0)};
  } catch (const c10::Error&) {  // LinAlgError: the iteration did not converge
    return std::nullopt;
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

std::optional<at::Tensor> damped_inverse(const at::Tensor& symmetric, double damping) {
  if (!all_finite(symmetric)) return std::nullopt;  // or solvers may loop for ever
  if (auto inverse = cholesky_inverse(symmetric, damping)) return inverse;
  const at::Tensor exact = symmetric.to(at::kDouble);
  for (int raised = 0; raised <= kMoreDamping; ++raised, damping *= 10)
    if (auto inverse = cholesky_inverse(exact, damping))
      if (const at::Tensor rounded = inverse->to(symmetric.scalar_type()); all_finite(rounded))
        return rounded;
  return std::nullopt;
}

// Not at::cholesky_inverse(): it may look at its solver's status on the host.
TriedInverse try_damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping) {
  at::Tensor damped = symmetric.clone();
  damped.diagonal(0, -2, -1).add_(damping.to(symmetric.scalar_type()).unsqueeze(-1));
  const auto [lower, info] = at::linalg_cholesky_ex(damped, /*upper=*/false,
                                                    /*check_errors=*/false);
  const at::Tensor root = at::linalg_solve_triangular(
      lower, at::eye(symmetric.size(-1), symmetric.options()), /*upper=*/false);
  const at::Tensor matrices = at::matmul(root.mT(), root);
  return {matrices, info.eq(0).logical_and(at::isfinite(matrices).flatten(1).all(1))};
}

TriedEigen try_symmetric_eigen(const at::Tensor& symmetric) {
  const at::Tensor usable = at::isfinite(symmetric).all();  // or solvers may loop for ever
  try {
    const auto [values, vectors] = at::linalg_eigh(at::where(usable, symmetric, 0.0));
    const at::Tensor finite = at::isfinite(values).all().logical_and(at::isfinite(vectors).all());
    return {vectors.contiguous(), values.clamp_min(0), usable.logical_and(finite)};
  } catch (const c10::LinAlgError&) {  // the iteration did not converge
    return {symmetric, symmetric.select(-1, 0), at::zeros_like(usable)};
  }
}

std::optional<SymmetricEigen> symmetric_eigen(const at::Tensor& symmetric) {
  if (!all_finite(symmetric)) return std::nullopt;
  if (auto found = eigen(symmetric)) return found;
  if (symmetric.scalar_type() == at::kDouble) return std::nullopt;
  auto found = eigen(symmetric.to(at::kDouble));
  if (found)
    for (at::Tensor* tensor : {&found->vectors, &found->values})
      *tensor = tensor->to(symmetric.scalar_type());
  return found;
}

}  // namespace linerate::torch_adapter
