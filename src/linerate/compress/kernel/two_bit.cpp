// Codes of two bits. Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/two_bit.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
#include "linerate/core/index.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/lanes-inl.hpp"
#include "linerate/compress/kernel/kernels.hpp"
// clang-format on

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {

/// Bit j of the lower half goes to bit 2 j. The halves of each part are moved apart: 8 bits, then
/// 4, 2 and 1. Example of the last two steps: 1011 becomes 10 00 11, which has two zeros between
/// the pairs. That becomes 01 00 01 01.
inline std::uint32_t spread(std::uint32_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  x = (x | x << 4) & 0x0f0f0f0fu;
  x = (x | x << 2) & 0x33333333u;
  return (x | x << 1) & 0x55555555u;
}

/// The word of 16 elements, and their residuals. The masks "at or above tau" and "at or below -tau"
/// have a bit an element. The high bit of a code is the first mask's. The low bit is set if neither
/// mask has the element.
std::uint32_t word_of(const float* gradient, float* residual, float tau) {
  static_assert(kCodesPerWord % kLanes == 0);
  const Floats up = hn::Set(kFloats, tau), down = hn::Set(kFloats, -tau);
  std::uint32_t positive = 0, negative = 0;
  for (std::size_t i = 0; i < kCodesPerWord; i += kLanes) {
    Floats v = hn::LoadU(kFloats, gradient + i);
    if (residual != nullptr) v = hn::Add(hn::LoadU(kFloats, residual + i), v);
    const auto is_up = hn::Ge(v, up), is_down = hn::Le(v, down);
    positive |= bits_of(is_up) << i;
    negative |= bits_of(is_down) << i;
    if (residual == nullptr) continue;
    const auto sent = hn::IfThenElse(is_up, up, hn::IfThenElseZero(is_down, down));
    hn::StoreU(hn::Sub(v, sent), kFloats, residual + i);
  }
  return spread(positive) << 1 | spread(~(positive | negative) & 0xffff);
}

void encode_words(const float* gradient, float* residual, std::size_t n, float tau,
                  std::byte* words) {
  std::size_t i = 0;
  for (; i + kCodesPerWord <= n; i += kCodesPerWord) {
    const std::uint32_t word = word_of(gradient + i, residual ? residual + i : nullptr, tau);
    std::memcpy(words + i / 4, &word, sizeof word);
  }
  if (i == n) return;
  std::array<float, kCodesPerWord> g{}, e{};
  std::copy(gradient + i, gradient + n, g.begin());
  if (residual) std::copy(residual + i, residual + n, e.begin());
  const std::uint32_t used = (1u << 2 * (n - i)) - 1;
  const std::uint32_t word = word_of(g.data(), residual ? e.data() : nullptr, tau) & used;
  if (residual) std::copy_n(e.begin(), n - i, residual + i);
  std::memcpy(words + i / 4, &word, sizeof word);
}

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(encode_words);

void encode_two_bit(const Input& input, float tau, std::byte* words) {
  float* residual = input.residual.empty() ? nullptr : input.residual.data();
  HWY_DYNAMIC_DISPATCH(encode_words)
  (input.gradient.data(), residual, input.gradient.size(), tau, words);
}

bool is_two_bit(std::span<const std::byte> words, std::size_t elements) {
  std::uint32_t wrong = 0;
  for (std::size_t i = 0; i < elements; i += kCodesPerWord) {
    std::uint32_t word;
    std::memcpy(&word, words.data() + i / 4, sizeof word);
    wrong |= word & word >> 1 & 0x55555555u;  // both bits of a code
    if (elements - i < kCodesPerWord) wrong |= word >> 2 * (elements - i);
  }
  return wrong == 0;
}

/// A table has the four values of each byte, so that a byte is decoded by one look-up.
void add_two_bit(std::span<const std::byte> words, float tau, std::span<float> out) {
  const std::array<float, 4> levels = {-tau, 0, tau, 0};
  std::array<std::array<float, 4>, 256> table;
  for (std::size_t byte = 0; byte < table.size(); ++byte)
    for (std::size_t j = 0; j < 4; ++j) table[byte][j] = levels[byte >> 2 * j & 3];
  std::size_t i = 0;
  for (; i + 4 <= out.size(); i += 4) {
    const auto& four = table[to_index(words[i / 4])];
    for (std::size_t j = 0; j < 4; ++j) out[i + j] += four[j];
  }
  for (; i < out.size(); ++i) out[i] += table[to_index(words[i / 4])][i % 4];
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
