// Magnitudes of a bucket's tensors as one array, and what is found of each tensor by itself: how
// gradients are cut into buckets changes nothing.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "linerate/torch_codecs/bucket_arrays.hpp"

namespace linerate::torch_codecs {

/// Elements of a row. A tensor's rows are filled up with zeros.
inline constexpr std::int64_t kEntryRow = 1024;

struct Magnitudes {
  explicit Magnitudes(const TensorOps::Values& v);
  /// `in_rows`: x, which is there.
  Magnitudes(const TensorOps::Values& v, const at::Tensor& in_rows);

  std::size_t tensors() const { return rows.places.size(); }
  at::TensorOptions whole() const { return x.options().dtype(at::kLong); }
  /// `numbers`, one a tensor: one of each row, [rows][1].
  at::Tensor by_row(const at::Tensor& numbers) const {
    return numbers.index_select(0, row_tensors).unsqueeze(1);
  }
  /// bool of x: what reaches each tensor's least magnitude, i32[tensors].
  at::Tensor reach(const at::Tensor& least) const { return bits >= by_row(least); }
  /// i64[tensors]: how many of a mask are each tensor's.
  at::Tensor count(const at::Tensor& mask) const { return sum_of_rows(mask.sum(1)); }
  /// i64[..][rows] added up to i64[..][tensors].
  at::Tensor sum_of_rows(const at::Tensor& of_rows) const;
  /// [n][rows] as [n][tensors][most rows], filled up: what is reduced then is so in one order.
  at::Tensor table(const at::Tensor& of_rows, const at::Scalar& fill) const;

  /// Numbers of elements within their tensors: i64 of x.
  at::Tensor numbers() const;

  /// Elements of each tensor by falling magnitude, ties by lower index.
  struct Sorted {
    at::Tensor keys, order;  // i64[rows kEntryRow]
  };
  Sorted sorted() const;
  /// bool of x: the k[tensor] largest of each tensor.
  at::Tensor largest(const std::vector<std::int64_t>& k) const;
  at::Tensor largest(const Sorted& sorted, const at::Tensor& k) const;
  /// i32[tensors]: the k-th largest of each one.
  at::Tensor kth_largest(const Sorted& sorted, const std::vector<std::int64_t>& k) const;
  /// count(reach(least)) of each row of `least`, i32[..][tensors].
  at::Tensor count_from(const Sorted& sorted, const at::Tensor& least) const;
  /// Where a mask is true, counted from 0 in each tensor: i64 of x. `counts`: count(mask).
  at::Tensor places_in(const at::Tensor& mask, const at::Tensor& counts) const;

  Padded rows;
  at::Tensor x, bits;      // f32, i32[rows][kEntryRow]
  at::Tensor row_tensors;  // i64[rows]

 private:
  at::Tensor last_keys() const;
  std::vector<std::int64_t> firsts() const;
};

/// Sizes of tensors, as one number each.
std::vector<std::int64_t> sizes_of(const Padded& rows);
/// Whole numbers that the host knows: i64, by one copy that it does not wait for.
at::Tensor listed(const std::vector<std::int64_t>& numbers, const at::TensorOptions& options);

}  // namespace linerate::torch_codecs
