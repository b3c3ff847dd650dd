// Tensors as memory of collectives.
#pragma once

#include "linerate/comm/buffer.hpp"

namespace at {
class Tensor;
}

namespace linerate::torch_adapter {

/// All elements of a tensor, in order; it is kept alive and untouched until the Work is done.
/// Autograd does not notice what a collective writes. f32, f64, f16, bf16, i32, i64 or u8. Throws
/// UsageError for another type or an undefined tensor. Throws it for a tensor that is not on the
/// CPU, not dense, not contiguous, or that is negated or conjugated lazily.
[[nodiscard]] comm::Buffer buffer(at::Tensor& tensor);
/// Only read.
[[nodiscard]] comm::ConstBuffer buffer(const at::Tensor& tensor);
/// A temporary would be gone before the collective has begun.
void buffer(at::Tensor&& tensor) = delete;

}  // namespace linerate::torch_adapter
