// The inputs that each output of a convolution sees. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/layer_input.hpp"

namespace linerate::torch_adapter {

/// Positions first, first + every, ... of an output's rows and columns.
struct PositionGrid {
  std::int64_t every = 1, first_row = 0, first_column = 0;

  std::int64_t rows(std::int64_t height) const { return count(height, first_row); }
  std::int64_t columns(std::int64_t width) const { return count(width, first_column); }

 private:
  std::int64_t count(std::int64_t size, std::int64_t first) const {
    return size > first ? (size - first - 1) / every + 1 : 0;
  }
};

/// input[N, C, H, W] f32 or f64 -> patches[C kh kw, N h w], h x w the grid's positions; rows in
/// the order of a weight [out, C, kh, kw], columns by sample. What lies in the padding is 0.
at::Tensor conv_patches(const at::Tensor& input, const ConvGeometry& geometry,
                        const PositionGrid& grid);

}  // namespace linerate::torch_adapter
