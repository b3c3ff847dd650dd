// Tensors of a bucket as one array, and numbers of each of them as another.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "linerate/compress/rounding_bits.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {

/// Numbers that the host knows, without a copy from its memory: of the options' type.
at::Tensor listed(const std::vector<at::Scalar>& numbers, const at::TensorOptions& options);

/// numbers[t], sizes[t] times, t after t.
at::Tensor spread(const at::Tensor& numbers, const std::vector<std::int64_t>& sizes);

/// Where each tensor is in an array in which each begins at a multiple of some elements.
struct Padded {
  Padded(const std::vector<std::int64_t>& sizes, std::int64_t multiple);
  static Padded of(const std::vector<TensorOps::Place>& tensors, std::int64_t multiple);
  static Padded of(const TensorOps::Values& values, std::int64_t multiple);

  /// The elements of each tensor, then zeros.
  at::Tensor array(const std::vector<at::Tensor>& values) const;
  /// Of tensors one after the other.
  at::Tensor array(const at::Tensor& joined) const;
  std::vector<at::Tensor> parts_of(const at::Tensor& array) const {
    return TensorOps::parts_of(array, places);
  }
  /// Of each tensor: its elements, filled up.
  std::int64_t room(std::size_t tensor) const;
  /// `numbers`, one a tensor: one of each row of `multiple` elements, [rows][1].
  at::Tensor by_row(const at::Tensor& numbers) const;
  /// bool[rows][multiple]: whether an element is a tensor's.
  at::Tensor is_filled(const at::TensorOptions& options) const;
  /// [rows] of the options' type: numbers of rows, from 0 in each tensor.
  at::Tensor row_numbers(const at::TensorOptions& options) const;
  /// [rows] of the options' type: numbers of their tensors.
  at::Tensor row_tensors(const at::TensorOptions& options) const;

  std::vector<TensorOps::Place> places;
  std::int64_t elements = 0, multiple = 1;
};

/// Elements of a block of random numbers; also a whole number of grids, of words and of groups.
inline constexpr auto kRow = static_cast<std::int64_t>(compress::kRoundingBlock);
/// rounding_bits() of each tensor's own stream: i32[rows][kRow] of an array with such rows.
at::Tensor rounding_bits(const TensorOps::Sending& tensors, const Padded& rows);

/// Means over the ranks, added in their order. said(payloads, rank) decodes a rank's payloads, by
/// tensor, to f32 of the array that `rows` lays out.
template <class Said>
void set_average(const TensorOps::Arriving& tensors, const Padded& rows, Said&& said) {
  at::Tensor mean;
  for (std::size_t p = 0; p < tensors.arrived.front().payloads.size(); ++p) {
    std::vector<at::Tensor> payloads;
    for (const TensorArrived& arrived : tensors.arrived) payloads.push_back(arrived.payloads[p]);
    const at::Tensor values = said(payloads, p).view({-1});
    mean = mean.defined() ? mean.add_(values) : values + 0.0f;
  }
  if (const int ranks = tensors.arrived.front().ranks; ranks > 1)
    mean.mul_(1.0f / static_cast<float>(ranks));
  TensorOps::set_means(tensors, rows.parts_of(mean));
}

}  // namespace linerate::torch_codecs
