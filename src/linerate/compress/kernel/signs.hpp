// Floats to one bit each and back, in words[ceil(n / 32)]. Bit j of word w is 1 if element 32 w + j
// is below zero, which -0.0 is not. Bits after the last element are 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate::compress {

constexpr std::size_t sign_bytes(std::size_t n) { return (n + 31) / 32 * 4; }

/// The sums that the levels of signs are made of.
enum class SignSum : std::uint8_t {
  none,
  magnitudes,  // first = sum of |v|
  squares,     // first = sum of v^2
  classes,     // first = sum of v >= 0, second = sum of v < 0, negatives = how many of these
};
/// Sums in f64, of 16 fixed lanes: the same bits on every machine.
struct SignSums {
  double first = 0, second = 0;
  std::int64_t negatives = 0;
};

/// `words` has sign_bytes(n) bytes, at any address.
SignSums pack_signs(std::span<const float> v, SignSum kind, std::byte* words);
/// The same of v = gradient + residual, which is left in `residual`: one pass.
SignSums add_and_pack_signs(std::span<const float> gradient, std::span<float> residual,
                            SignSum kind, std::byte* words);

/// The two values that signs stand for.
struct SignLevels {
  float positive, negative;
};
/// out = levels; out += levels; out -= levels. `words` are those of out's elements.
void set_signs(const std::byte* words, SignLevels levels, std::span<float> out);
void add_signs(const std::byte* words, SignLevels levels, std::span<float> out);
void subtract_signs(const std::byte* words, SignLevels levels, std::span<float> out);

/// Whether the bits after element n are 0, as they are sent.
bool has_clean_tail(const std::byte* words, std::size_t n);

}  // namespace linerate::compress
