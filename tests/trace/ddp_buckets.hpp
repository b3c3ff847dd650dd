// DDP's buckets of gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/bucket_limits.hpp"

namespace linerate::trace {

/// Sizes in bytes, for gradients in the given order, all of one dtype. A bucket closes with the
/// tensor by which it reaches its limit. The last limit repeats. Gradients of 3, 9, 9, 8 and 2 MiB
/// under limits of 1 and 25 MiB become buckets of 3, 26 and 2 MiB.
inline std::vector<std::int64_t> ddp_buckets(std::span<const std::int64_t> gradient_bytes,
                                             std::span<const std::int64_t> limits) {
  std::vector<std::int64_t> buckets;
  std::int64_t open = 0;
  BucketLimits rule(limits);
  for (const std::int64_t g : gradient_bytes) {
    open += g;
    if (!rule.closes_at(open)) continue;
    buckets.push_back(open);
    open = 0;
  }
  if (open > 0) buckets.push_back(open);
  return buckets;
}

}  // namespace linerate::trace
