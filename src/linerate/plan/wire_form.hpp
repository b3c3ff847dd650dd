// What a bucket becomes on the wire.
#pragma once

#include <cstdint>
#include <optional>

#include "linerate/core/dtype.hpp"

namespace linerate::plan {

// How gradients look on the wire. An example with ratio 8 and gather: 100 f32 elements are 400 B
// dense and a payload of 50 B. Among 4 ranks the all-gather's size is 4 * 50 = 200 B.
struct WireForm {
  std::optional<DType> wire;  // absent: the gradients' own type
  double ratio = 1;           // dense bytes / payload bytes
  bool gather = false;        // payloads cannot be summed: all-gather

  DType dtype(DType gradient) const { return wire.value_or(gradient); }
  /// True if the bucket itself travels.
  bool is_plain(DType gradient) const {
    return ratio == 1 && !gather && dtype(gradient) == gradient;
  }
  /// S of the collective, as core/collective.hpp defines it: the all-gather's total grows with n.
  std::int64_t bytes(std::int64_t elements, DType gradient, int ranks) const {
    const std::int64_t dense = elements * size_of(dtype(gradient));
    if (ratio == 1 && !gather) return dense;
    const double one = static_cast<double>(dense) / ratio;
    const auto whole = static_cast<std::int64_t>(one);
    const std::int64_t payload = whole + (static_cast<double>(whole) < one);  // rounded up
    return gather ? payload * ranks : payload;
  }
};

}  // namespace linerate::plan
