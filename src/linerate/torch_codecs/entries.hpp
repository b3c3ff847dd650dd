// Elements picked from a tensor, and their payloads (compress/sparse_payload.hpp), without waiting
// for their number: it is a tensor, and memory is made for the most there can be.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string_view>

#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// The k-th largest of i32 magnitudes, as a tensor of one element; 1 <= k <= their number.
at::Tensor kth_largest(const at::Tensor& magnitudes, std::int64_t k);
/// bool: the k largest, ties by lower index.
at::Tensor largest_of(const at::Tensor& magnitudes, std::int64_t k);
/// The same among those that are `selected`; all of these if they are no more than k.
at::Tensor largest_of(const at::Tensor& magnitudes, const at::Tensor& selected, std::int64_t k);

/// kernel/magnitude.hpp's bits_at_least() of a threshold, f64 of one element: i32. Beyond f32:
/// infinity's.
at::Tensor bits_at_least(const at::Tensor& threshold);

/// The elements of a mask in their order.
struct Picked {
  at::Tensor index;  // i64[capacity]; the number of elements for none
  at::Tensor count;  // i64: those of the mask; the first `capacity` have an index
};
Picked pick(const at::Tensor& mask, std::int64_t capacity);

/// Payload of as many entries as there is capacity, all of them picked.
at::Tensor entries_payload(const at::Tensor& v, const Picked& picked);
/// Payload that begins with their count, in `bytes` bytes.
TensorPayload counted_entries_payload(const at::Tensor& v, const Picked& picked,
                                      std::int64_t bytes);
/// v without what is sent of it.
at::Tensor without(const at::Tensor& v, const at::Tensor& mask);

/// What payloads of entries say of n elements, a row each.
struct ReadEntries {
  at::Tensor values, index;  // f32, i64[payloads][most]; n: of none
  at::Tensor wrong;          // bool[payloads]: it is none that the method sends
};
ReadEntries read_entries(const TensorArrived& arrived, std::int64_t count, std::int64_t n);
/// Of those that begin with their count. More than `most`: wrong, and none of it is read.
ReadEntries read_counted_entries(const TensorArrived& arrived, std::int64_t most, std::int64_t n);
/// Their mean. `also(p, sum)` adds what else payload p says.
void average_entries(const TensorArrived& arrived, const ReadEntries& read, const at::Tensor& mean,
                     const std::function<void(std::size_t, const at::Tensor&)>& also = {});
/// The mean of payloads that begin with their counts, `bytes` each; bool: whether one is none.
at::Tensor average_counted_entries(const TensorArrived& arrived, std::int64_t bytes,
                                   std::int64_t most, std::string_view method,
                                   const at::Tensor& mean);

}  // namespace linerate::torch_codecs
