// The arguments of an operator that uses a layer's weight. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "linerate/core/index.hpp"

namespace linerate::torch_adapter {

/// The geometry of a 2-d convolution; [0] is along the height, [1] along the width.
struct ConvGeometry {
  using Pair = std::array<std::int64_t, 2>;
  Pair kernel{1, 1}, stride{1, 1}, dilation{1, 1}, pad_before{0, 0}, pad_after{0, 0};

  std::int64_t outputs(int axis, std::int64_t inputs) const {
    const auto i = to_index(axis);
    const std::int64_t span = dilation[i] * (kernel[i] - 1) + 1;
    return (inputs + pad_before[i] + pad_after[i] - span) / stride[i] + 1;
  }
};

struct LayerInput {
  /// linear [..., in], conv [N, C, H, W] or [C, H, W], embedding: indices [...], norm: as given. A
  /// 1-d convolution is a 2-d one of height 1. A 3-d convolution is a 2-d one of images. There is
  /// an image for each depth of its output, with C kd channels, the depths of a sample one after
  /// the other.
  at::Tensor tensor = {};
  ConvGeometry conv = {};
  std::int64_t images = 1;          // of a sample
  std::int64_t padding_index = -1;  // embedding
  // norm: layer norm over the last dimensions, else batch norm over all but dimension 1
  bool is_layer_norm = false;
  std::int64_t normalized_dims = 0;
  bool batch_statistics = true;
  at::Tensor running_mean = {}, running_variance = {};
  double epsilon = 0;
  /// Draws the rows at which a subsampled convolution is looked at.
  std::uint64_t draw = 0;
};

}  // namespace linerate::torch_adapter
