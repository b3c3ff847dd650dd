// PyTorch DDP's bucket rule (core/bucket_limits.hpp): whether a trace follows it, and with which
// limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// DDP's rule against what was exchanged.
struct BucketPlan {
  std::vector<std::int64_t> bytes;  // one step's gradient exchanges, in order of issue
  std::int64_t step = -1;           // number of the step that shows it; -1: none
  std::string verdict;              // one sentence
  bool matches_rule = false;        // sizes are those of PyTorch's rule; not asked of Timelines
  /// The strategy that exchanges so, as linerate writes it: "ddp(bucket_cap_mb=10)"; empty: none
  /// that linerate knows, or unknown.
  std::string strategy;
};

/// Sizes in bytes of DDP's buckets for gradients in the given order, all of one dtype. A bucket
/// closes with the tensor by which it reaches its limit. The last limit repeats. Gradients of 3, 9,
/// 9, 8 and 2 MiB under limits of 1 and 25 MiB become buckets of 3, 26 and 2 MiB.
[[nodiscard]] std::vector<std::int64_t> ddp_buckets(std::span<const std::int64_t> gradient_bytes,
                                                    std::span<const std::int64_t> limits);
/// Compares the gradient exchanges of the last whole step with the rule. Exchanges are kernels, or
/// what the host announced if there are none. Other all-reduces, of metrics or buffers, are left
/// out if the gradients tell them apart. nullopt: no step has exchanges of known size.
[[nodiscard]] std::optional<BucketPlan> check_buckets(const Job& job);

}  // namespace linerate::trace
