// Private: which limits DDP's rule needs to cut gradients into the buckets that a trace shows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace linerate::trace {

/// Any limit above `low` and up to `high` bytes cuts the same buckets.
struct LimitRange {
  std::int64_t low = 0, high = INT64_MAX;

  bool holds(std::int64_t limit) const { return limit > low && limit <= high; }
  bool empty() const { return low >= high; }
};

/// Limits of the first bucket, and of all that follow.
struct LimitRanges {
  LimitRange first, rest;
};

/// The buckets of `gradients` (bytes, in the order in which they got ready), in order, found among
/// `exchanged` (others are passed over); nullopt if they do not cover all gradients. `kept`:
/// positions in `exchanged` of the buckets.
std::optional<LimitRanges> limits_of(std::span<const std::int64_t> gradients,
                                     std::span<const std::int64_t> exchanged,
                                     std::vector<std::size_t>& kept);

/// The options of `ddp` that stand for these limits, the defaults before an explicit bucket_cap_mb
/// before others: "", "bucket_cap_mb=10", "first=1MiB, bucket=10MiB"; nullopt if no limit cuts so.
std::optional<std::string> ddp_options(const LimitRanges& limits);

}  // namespace linerate::trace
