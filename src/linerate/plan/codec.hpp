// A generic compressor as the planner sees it: how much smaller, how fast, summable or gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/task.hpp"

namespace linerate::plan {

/// codec(ratio=8, encode=10GB/s, decode=12GB/s, exchange=sum|gather, on=codec|compute, name=...).
/// Rates count bytes of the dense gradient; an absent rate costs nothing (the ceiling).
struct Codec {
  double ratio = 1;     // dense bytes / payload bytes
  bool gather = false;  // payloads cannot be summed: all-gather, decode once for each rank
  doc::Resource resource = doc::Resource::codec;
  doc::CodecCost cost;  // rates of 0: free

  /// Throws UsageError; rates that are not given come from the Cluster's codec of that name.
  static Codec parse(const doc::Component& component, const doc::Cluster& cluster);

  double encode_s(std::int64_t dense_bytes) const;
  /// Of one payload.
  double decode_s(std::int64_t dense_bytes) const;
};

/// What a bucket becomes on the wire.
struct Payload {
  std::optional<DType> wire;  // absent: the gradients' own type
  double ratio = 1;
  bool gather = false;

  DType dtype(DType gradient) const { return wire.value_or(gradient); }
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
