// The two 16-bit floats as a compressor: fp16.cpp and bf16.cpp are its lines.
#pragma once

#include <memory>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// Payload: a 16-bit float an element, 2n bytes, of v / ranks: divided before the cast, as a cast
/// gradient times the ranks would overflow. Ranks add them (all-reduce), and the sum is the mean.
/// Without a residual v beyond the range of the type becomes an infinity, which the mean shows.
/// With one v is cut off at half_limit(): the rest is sent in later steps, or, under a loss scale,
/// the codec says that it overflowed.
std::unique_ptr<const Compressor> half_precision(DType half);

/// The largest v of so many ranks that the type holds. v / ranks, each partial sum of up to `ranks`
/// of them and the mean are rounded by 2^-11 at most; of two ranks none reaches the infinity.
constexpr float half_limit(DType half, int ranks) {
  if (half != DType::f16) return 0x1p127f;
  const float rounded = ranks <= 2 ? 0 : static_cast<float>(ranks) * 0x1p-11f;
  return 65504 * (rounded < 0.5f ? 1 - rounded : 0.5f);
}

}  // namespace linerate::compress
