// Lays the tensors of a bucket out as one array, and one number of each tensor as another. A launch
// costs some microseconds whatever it works on, so codecs here work on arrays of whole buckets.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "linerate/compress/cast.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {

/// Numbers that the host knows, as a tensor of the options' type. They travel as arguments of an
/// operator, so nothing is copied from the host's memory.
at::Tensor listed(const std::vector<at::Scalar>& numbers, const at::TensorOptions& options);

/// numbers[t], sizes[t] times, for one t after the other.
at::Tensor spread(const at::Tensor& numbers, const std::vector<std::int64_t>& sizes);

/// The places of tensors in an array in which each tensor begins at a multiple of some elements. A
/// row is `multiple` elements, so no row has two tensors.
///
/// Example: three tensors of 3, 8 and 5 elements at multiples of 4. They begin at 0, 4 and 12, and
/// the array has 20 elements in 5 rows. row_tensors() is 0, 1, 1, 2, 2, and row_numbers() is 0, 0,
/// 1, 0, 1.
struct Padded {
  Padded(const std::vector<std::int64_t>& sizes, std::int64_t multiple);
  static Padded of(const std::vector<TensorOps::Place>& tensors, std::int64_t multiple) {
    return {mapped(tensors, &TensorOps::Place::elements), multiple};
  }
  static Padded of(const TensorOps::Values& values, std::int64_t multiple) {
    return {mapped(values, &at::Tensor::numel), multiple};
  }

  /// One number a tensor: its elements, and its first place.
  std::vector<std::int64_t> sizes() const { return mapped(places, &TensorOps::Place::elements); }
  std::vector<std::int64_t> firsts() const { return mapped(places, &TensorOps::Place::first); }
  std::vector<std::int64_t> row_counts() const;
  std::int64_t most_rows() const;

  /// The elements of each tensor, then zeros.
  at::Tensor array(const std::vector<at::Tensor>& values) const;
  /// The same, of tensors that lie one after the other in `joined`.
  at::Tensor array(const at::Tensor& joined) const;
  std::vector<at::Tensor> parts_of(const at::Tensor& array) const {
    return TensorOps::parts_of(array, places);
  }
  /// Each tensor's part of packed codes of the array, in whole words as its payload has them.
  std::vector<at::Tensor> codes_of_each(const at::Tensor& packed, int bits) const;
  /// A tensor's elements, filled up to whole rows.
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

/// Payloads' bytes from byte `begins` of each, as many as `like` has.
std::vector<at::Tensor> sections(const std::vector<at::Tensor>& payloads,
                                 const std::vector<std::int64_t>& begins,
                                 const std::vector<at::Tensor>& like);

/// Refuses gathered payloads of another size than expected(t).
template <class Expected>
void check_all_gathered(const TensorOps::Arriving& tensors, std::string_view method,
                        Expected&& expected) {
  for (std::size_t t = 0; t < tensors.arrived.size(); ++t)
    check_gathered(tensors.arrived[t], expected(t), method);
}

// Magnitudes of a bucket's tensors as one array, and what is found of each tensor by itself: how
// gradients are cut into buckets changes nothing.

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
};

/// Whole numbers that the host knows, of the options' type: i32 or i64. By one copy that the host
/// does not wait for.
at::Tensor listed(const std::vector<std::int64_t>& numbers, const at::TensorOptions& options);
/// Several such lists of one length by one copy.
std::vector<at::Tensor> listed(const std::vector<std::vector<std::int64_t>>& lists,
                               const at::TensorOptions& options);

}  // namespace linerate::torch_codecs
