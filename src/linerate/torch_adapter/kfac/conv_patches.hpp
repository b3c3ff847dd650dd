// The inputs that each output of a convolution sees. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/layer_input.hpp"

namespace linerate::torch_adapter {

/// input[N, C, H, W] f32 or f64 -> patches[C kh kw, N h w], where the output has h x w positions.
/// Rows are in the order of a weight [out, C, kh, kw], columns by sample. What lies in the padding
/// is 0.
at::Tensor conv_patches(const at::Tensor& input, const ConvGeometry& geometry);

}  // namespace linerate::torch_adapter
