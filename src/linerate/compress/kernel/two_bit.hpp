// Strom 2015's wire form: two bits an element, -tau, 0 or +tau.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// 16 codes fill a 32-bit word.
inline constexpr std::size_t kCodesPerWord = 16;
constexpr std::int64_t two_bit_bytes(std::int64_t elements) {
  constexpr auto a_word = static_cast<std::int64_t>(kCodesPerWord);
  return 4 * ((elements + a_word - 1) / a_word);
}

/// Writes ceil(n / 16) words of codes, element i in bits 2 (i mod 16). The code is 0 for v <= -tau,
/// 2 for v >= tau, else 1. Bits after the last element are zero. v = gradient + residual, and the
/// residual becomes v - (code - 1) tau. Example with tau = 1: a v of 2.5 sends 1 and leaves 1.5. If
/// the next gradient is 0, it sends 1 again and leaves .5.
void encode_two_bit(const Input& input, float tau, std::byte* words);
/// Whether all `elements` codes are 0, 1 or 2 and all bits after them zero.
bool is_two_bit(std::span<const std::byte> words, std::size_t elements);
/// out[i] += (code - 1) tau, of whole words' elements from the first on.
void add_two_bit(std::span<const std::byte> words, float tau, std::span<float> out);

}  // namespace linerate::compress
