// Private: which limits DDP's rule (core/bucket_limits.hpp) needs to cut gradients into the buckets
// that a trace shows. A trace has sizes of gradients and of exchanges, and not the limits.
//
// Example. Gradients get ready in the order 3, 4, 2, 5, 1 MiB, and exchanges have 7, 7 and 1 MiB.
// The first bucket closed at 7 MiB and not yet at 3, so its limit is above 3 and at most 7 MiB. The
// second one closed at 7 MiB and not at 2. The end of the gradients closed the last one, so it
// bounds a limit from below only. Any limit above 3 and up to 7 MiB gives these buckets, and 5 is
// the number that a person would have typed: bucket_cap_mb=5.
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

/// Finds the buckets of `gradients` among `exchanged`. Both are in bytes, the first in the order in
/// which gradients got ready, the second in order of issue. An exchange that is not the sum of the
/// next gradients is passed over. nullopt: the buckets do not cover all gradients. `kept` is set to
/// the positions of the buckets in `exchanged`.
std::optional<LimitRanges> limits_of(std::span<const std::int64_t> gradients,
                                     std::span<const std::int64_t> exchanged,
                                     std::vector<std::size_t>& kept);

/// The options of `ddp` that stand for these limits: "", "bucket_cap_mb=10" or "bucket=10MiB,
/// first=2MiB". DDP's defaults are preferred to an explicit bucket_cap_mb, and that to two limits.
/// nullopt: no limit cuts so.
std::optional<std::string> ddp_options(const LimitRanges& limits);

}  // namespace linerate::trace
