// Products of large matrices. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

namespace linerate::torch_adapter {

/// x yᵀ, [n, m], of x[n, k] and y[m, k]. Large ones in f32 go through oneDNN, as LibTorch's
/// convolutions do. On an AMD processor with AVX-512 LibTorch's sgemm, MKL's, took 2.1 to 2.3 times
/// as long (docs/kfac.md).
[[nodiscard]] at::Tensor times_transpose(const at::Tensor& x, const at::Tensor& y);

}  // namespace linerate::torch_adapter
