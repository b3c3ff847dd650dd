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

/// kernel/magnitude.hpp's bits_at_least() and bits_above() of a threshold, f64 of one element: i32.
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

/// What a payload of entries says of n elements.
struct ReadEntries {
  at::Tensor values;  // f32[n]
  at::Tensor wrong;   // bool: it is none
};
ReadEntries read_entries(const at::Tensor& payload, std::int64_t count, std::int64_t n);
/// Of one that begins with its count, `most` at most; `used` as TensorArrived has it.
ReadEntries read_counted_entries(const at::Tensor& payload, std::int64_t most, std::int64_t n,
                                 const at::Tensor& used);
/// The mean of payloads that begin with their counts, `bytes` each; bool: whether one is none.
at::Tensor average_counted_entries(const TensorArrived& arrived, std::int64_t bytes,
                                   std::int64_t most, std::string_view method,
                                   const at::Tensor& mean);

}  // namespace linerate::torch_codecs
