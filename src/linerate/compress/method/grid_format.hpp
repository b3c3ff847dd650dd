// Values on an even grid for each bucket. Methods differ in the choice of a bucket's grid, and in
// the numbers that describe it in the payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/grid.hpp"

namespace linerate::compress {

/// The numbers of a bucket that are sent before the codes: one, or two.
using BucketHead = std::array<float, 2>;
enum class HeadRule : std::uint8_t {
  norm,       // the 2-norm, top times the unit
  ends,       // the least value, the unit
  deviation,  // the largest magnitude, clipped at so many standard deviations; the unit
};

/// Payload: `head_size` f32 a bucket, then codes of `bits` bits, padded with zeros to 4 bytes.
struct GridFormat {
  std::string method;  // for messages
  HeadRule rule = HeadRule::norm;
  int bits = 8;  // 1, 2, 4 or 8
  int top = 0;   // the largest code
  bool is_signed = false;
  bool is_stochastic = false;
  /// Code -1 travels as 10 and 11 is none, in place of two's complement.
  bool ternary = false;
  std::size_t head_size = 1;
  std::size_t bucket = 0;  // a power of two, 32 to 4096; 0: the whole tensor
  bool unbiased = false;
  Residual residual = Residual::none;
  /// Writes the head of each bucket of v, one after the other.
  void (*heads_of)(std::span<const float> v, const GridFormat&, BucketHead* heads) = nullptr;
  /// The grid that a head describes. For numbers that no bucket has, its unit is below zero or not
  /// finite.
  Grid (*grid_of)(const BucketHead&, const GridFormat&) = nullptr;
  double clip = 0;  // in standard deviations
};

/// The bytes before the codes of a tensor of n elements.
std::int64_t heads_bytes(const GridFormat& format, std::int64_t n);
/// All of its payload.
std::int64_t bytes_of(const GridFormat& format, std::int64_t n);

/// The f32 at or above `value`, at most the largest. A unit that is rounded down would leave the
/// largest value of a bucket beyond the last point of its grid.
float round_up(double value);

}  // namespace linerate::compress
