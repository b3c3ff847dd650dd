// Parts of a bucket's payload as exec/compression lays them, where their sizes are known on the
// device alone: a part is its bytes (u32) and that many of them, padded to whole words.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// Parts one after the other: each begins where the one before ends.
class PartsWriter {
 public:
  /// `block`: u8, of whole words; written by finish().
  explicit PartsWriter(const at::Tensor& block);
  void put(const TensorPayload& part);
  /// Zeros after the last part. Returns the bytes of all of them: i64, of no dimensions.
  at::Tensor finish();

 private:
  at::Tensor block_, words_;  // i32; the last one of words_ is of no part
  at::Tensor at_;             // the next part's first word: i64, of no dimensions
};

/// What PartsWriter wrote on several ranks.
class PartsReader {
 public:
  /// `blocks`: u8, of the same number of whole words each.
  explicit PartsReader(const std::vector<at::Tensor>& blocks);
  /// Of each block the next part, which has at most `bytes` bytes and is filled up to them with
  /// zeros. One that says more, or ends beyond its block, is empty.
  TensorArrived next(std::int64_t bytes, int ranks);
  /// bool: whether there was such a one.
  const at::Tensor& damaged() const { return damaged_; }

 private:
  at::Tensor rows_;  // i32[blocks][words]
  at::Tensor at_;    // i64[blocks]
  at::Tensor damaged_;
};

}  // namespace linerate::torch_codecs
