// Inverses and eigendecompositions of one symmetric matrix that do not give up early. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace linerate::torch_adapter {

/// Whether no element is infinite or NaN.
bool all_finite(const at::Tensor& tensor);

/// (symmetric + damping I)^-1, both triangles, in the given type: by Cholesky; if that fails, in
/// f64, then with 10, 100 and 1000 times the damping. Absent if all of that failed. The argument
/// stays as it is.
std::optional<at::Tensor> damped_inverse(const at::Tensor& symmetric, double damping);

/// Nothing is read: a device computes it later.
struct TriedInverse {
  at::Tensor matrices;   // [n, d, d], both triangles; of no use if it failed
  at::Tensor succeeded;  // bool[n]: it is finite
};
/// (symmetric[i] + damping[i] I)^-1 of n matrices of one size together, by Cholesky in their own
/// precision. damping: [n], of any floating type.
TriedInverse try_damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping);

/// symmetric[i] = vectors[i] diag(values[i]) vectors[i]ᵀ of n matrices of one size together, in
/// their own precision; the host waits for the solver's status, and for nothing else.
struct TriedEigen {
  at::Tensor vectors, values;  // [n, d, d], [n, d] >= 0; of no use if it failed
  at::Tensor succeeded;        // bool, of no dimensions: all are finite
};
TriedEigen try_symmetric_eigen(const at::Tensor& symmetric);

/// symmetric = vectors diag(values) vectorsᵀ, values >= 0 (a negative one is rounding).
struct SymmetricEigen {
  at::Tensor vectors, values;  // [d, d], [d]
};
/// If it fails, in f64. Absent if that fails too.
std::optional<SymmetricEigen> symmetric_eigen(const at::Tensor& symmetric);

}  // namespace linerate::torch_adapter
