// Inverses and eigendecompositions of symmetric matrices, in one try each. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace linerate::torch_adapter {

/// Whether no element is infinite or NaN.
bool all_finite(const at::Tensor& tensor);
/// The same of each tensor: bool [tensors], on their device.
at::Tensor which_are_finite(const std::vector<at::Tensor>& tensors);

/// Results of a solver. On a device the host reads none of them.
struct Solved {
  at::Tensor matrices;     // [n, d, d], of no use if it failed
  at::Tensor values = {};  // of eigenvectors: [n, d] >= 0 (a negative one is rounding)
  at::Tensor succeeded;    // bool [n]: all of it is finite
};
/// (symmetric[i] + damping[i] I)^-1 of n matrices of one size, both triangles, by Cholesky in their
/// own type. `symmetric` [n, d, d] is overwritten. damping: [n], of any floating type.
Solved damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping);

/// symmetric[i] = vectors[i] diag(values[i]) vectors[i]ᵀ, one after the other, in their own type;
/// the host waits for each solver's status, and for nothing else.
Solved symmetric_eigen(const at::Tensor& symmetric);

}  // namespace linerate::torch_adapter
