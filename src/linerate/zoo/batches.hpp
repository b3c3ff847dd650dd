// From samples in memory to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "linerate/zoo/dataset.hpp"

namespace linerate::zoo {

struct Batch {
  at::Tensor input;   // [B, C, H, W] f32, normalised, channels last; or [B, T] i64
  at::Tensor target;  // [B] or [B, T] i64
  std::int64_t size = 0;
};

/// Mirrors an image left to right with probability 1/2. (seed, epoch, sample) decide, so the result
/// is the same for any rank count.
struct Flip {
  bool on = false;
  std::uint64_t key = 0;  // of seed and epoch
};

/// Gathers the samples of these indices. `set` outlives it.
class Batcher {
 public:
  Batcher(const Samples& samples, const DataSet& set);
  Batch gather(std::span<const std::int64_t> indices, const Flip& flip = {}) const;

 private:
  at::Tensor images(std::span<const std::int64_t> indices, const Flip& flip) const;

  const Samples& samples_;
  std::vector<float> scale_, shift_;  // per channel: pixel * scale + shift
};

}  // namespace linerate::zoo
