// PyTorch DDP's bucket rule (compute_bucket_assignment_by_size in its reducer.cpp): a bucket closes
// with the tensor that makes it reach its limit, so tensors are never split; limits apply in turn,
// the last one to all buckets that follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate {

/// For one list of tensors of one dtype. `limits`, in bytes, must not be empty and must outlive it.
class BucketLimits {
 public:
  explicit BucketLimits(std::span<const std::int64_t> limits) : limits_(limits) {}

  /// Whether the open bucket closes now that it holds so many bytes; the next one has the next
  /// limit.
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
