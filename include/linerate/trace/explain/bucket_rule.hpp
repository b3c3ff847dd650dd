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

/// Sizes in bytes of DDP's buckets for gradients in the given order: a bucket closes when it holds
/// at least its limit, the tensor that reaches it included; the last limit repeats. One dtype.
[[nodiscard]] std::vector<std::int64_t> ddp_buckets(std::span<const std::int64_t> gradient_bytes,
                                                    std::span<const std::int64_t> limits);
/// The gradient exchanges of the last whole step (kernels, else what the host announced) against
/// the rule; nullopt when no step has exchanges of known size. Other all-reduces (metrics, buffers)
/// are left out if the gradients tell them apart.
[[nodiscard]] std::optional<BucketPlan> check_buckets(const Job& job);

}  // namespace linerate::trace
