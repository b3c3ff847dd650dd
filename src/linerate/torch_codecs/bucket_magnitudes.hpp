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

/// The type of places among so many elements, and of their numbers: i32 where that is enough, as
/// arrays of them are as large as the bucket.
at::ScalarType type_of_places(std::int64_t elements);

struct Magnitudes {
  explicit Magnitudes(const TensorOps::Values& v);
  /// `in_rows`: x, which is there.
  Magnitudes(const TensorOps::Values& v, const at::Tensor& in_rows);

  std::size_t tensors() const { return rows.places.size(); }
  /// Of numbers of elements.
  at::TensorOptions whole() const { return x.options().dtype(type_of_places(rows.elements)); }
  /// `numbers`, one a tensor: one of each row, [rows][1].
  at::Tensor by_row(const at::Tensor& numbers) const {
    return numbers.index_select(0, row_tensors).unsqueeze(1);
  }
  /// i32 of x.
  at::Tensor bits() const;
  /// bool of x: what reaches each tensor's least magnitude, i32[tensors].
  at::Tensor reach(const at::Tensor& least) const { return bits() >= by_row(least); }
  /// [tensors]: how many of a mask are each tensor's.
  at::Tensor count(const at::Tensor& mask) const {
    return sum_of_rows(mask.sum(1, false, whole().dtype().toScalarType()));
  }
  /// [..][rows] added up to [..][tensors].
  at::Tensor sum_of_rows(const at::Tensor& of_rows) const;
  /// [n][rows] as [n][tensors][most rows], filled up: what is reduced then is so in one order.
  at::Tensor table(const at::Tensor& of_rows, const at::Scalar& fill) const;

  /// Elements of each tensor by falling magnitude, ties by lower index: [rows kEntryRow].
  struct Sorted {
    at::Tensor keys;   // i32 of one tensor, i64 of several
    at::Tensor order;  // i64
  };
  Sorted sorted() const;
  /// Where in x the k[tensor] largest of each tensor are, ascending: i64[all].
  at::Tensor largest(const std::vector<std::int64_t>& k) const;
  /// bool of x: the same with numbers k[tensors] of the device.
  at::Tensor largest(const Sorted& sorted, const at::Tensor& k) const;
  /// i32[tensors]: the k-th largest of each one.
  at::Tensor kth_largest(const Sorted& sorted, const std::vector<std::int64_t>& k) const;
  /// count(reach(least)) of each row of `least`, i32[..][tensors].
  at::Tensor count_from(const Sorted& sorted, const at::Tensor& least) const;
  /// Of x: how many of a mask there are in the bucket up to and with each element.
  at::Tensor running_count(const at::Tensor& mask) const {
    return mask.to(whole().dtype().toScalarType()).view({-1}).cumsum_(0);
  }

  Padded rows;
  at::Tensor x;            // f32[rows][kEntryRow]
  at::Tensor row_tensors;  // i64[rows]

 private:
  at::Tensor last_keys() const;
  std::vector<std::int64_t> firsts() const;
};

/// Sizes of tensors, as one number each.
std::vector<std::int64_t> sizes_of(const Padded& rows);
/// Whole numbers that the host knows, of the options' type: i32 or i64. By one copy that the host
/// does not wait for.
at::Tensor listed(const std::vector<std::int64_t>& numbers, const at::TensorOptions& options);
/// Several such lists of one length by one copy.
std::vector<at::Tensor> listed(const std::vector<std::vector<std::int64_t>>& lists,
                               const at::TensorOptions& options);

}  // namespace linerate::torch_codecs
