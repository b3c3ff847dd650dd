// Magnitudes as integers: the bits of a float without its sign. Their order is that of |x|,
// exactly, whatever the processor does with denormals.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace linerate::compress {

inline constexpr std::uint32_t kMagnitude = 0x7fffffff;
/// Above every finite magnitude: selects nothing.
inline constexpr std::uint32_t kNoMagnitude = kMagnitude;

inline std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & kMagnitude;
}

/// Bits of the smallest float >= threshold, a finite number >= 0: |x| >= threshold is then
/// magnitude_bits(x) >= the answer.
inline std::uint32_t bits_at_least(double threshold) {
  if (threshold > static_cast<double>(std::numeric_limits<float>::max())) return kNoMagnitude;
  const auto nearest = static_cast<float>(threshold);
  const std::uint32_t bits = magnitude_bits(nearest);
  return static_cast<double>(nearest) < threshold ? bits + 1 : bits;
}
/// Bits of the smallest float > threshold.
inline std::uint32_t bits_above(double threshold) {
  const std::uint32_t bits = bits_at_least(threshold);
  if (bits == kNoMagnitude) return bits;
  return static_cast<double>(std::bit_cast<float>(bits)) > threshold ? bits : bits + 1;
}

}  // namespace linerate::compress
