// PyTorch DDP's bucket rule (compute_bucket_assignment_by_size in its reducer.cpp). A bucket closes
// with the tensor that makes it reach its limit, so tensors are never split. Limits apply in turn,
// and the last one applies to all later buckets.
//
// For example limits of 1 and 25 MB, and tensors of 0.6, 0.7, 20, 10 and 3 MB. The first bucket
// closes at 1.3 MB, the second at 30 MB, and the third keeps the 3 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate {

/// For one list of tensors of one dtype. `limits`, in bytes, must not be empty and must outlive it.
class BucketLimits {
 public:
  explicit BucketLimits(std::span<const std::int64_t> limits) : limits_(limits) {}

  /// Whether the open bucket closes with so many bytes in it. If it does, the next bucket has the
  /// next limit.
  bool closes_at(std::int64_t bytes) {
    if (bytes < limits_[at_]) return false;
    if (at_ + 1 < limits_.size()) ++at_;
    return true;
  }

 private:
  std::span<const std::int64_t> limits_;
  std::size_t at_ = 0;
};

}  // namespace linerate
