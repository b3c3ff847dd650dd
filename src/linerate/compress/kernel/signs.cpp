// Codes of one bit and of two. Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/signs.cpp"
#include "linerate/compress/kernel/fixed_lanes-inl.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/index.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

constexpr std::size_t kVectorsOf16 = 16 / kLanes;

/// The sums that levels need, of the kind that is asked for. The others are not computed.
template <LevelRule rule>
class Sums {
 public:
  HWY_INLINE void add(std::size_t at, Floats v) {
    if constexpr (rule == LevelRule::mean_magnitude) first_.add(at, widen(hn::Abs(v)));
    if constexpr (rule == LevelRule::root_mean_square) first_.add(at, multiply(widen(v), widen(v)));
    if constexpr (rule == LevelRule::mean_of_class) {
      first_.add(at, widen(hn::Max(v, hn::Zero(kFloats))));
      second_.add(at, widen(hn::Min(v, hn::Zero(kFloats))));
    }
  }
  HWY_INLINE void count(std::uint32_t word) {
    if constexpr (rule == LevelRule::mean_of_class) negatives_ += std::popcount(word);
  }
  SignSums total() const { return {first_.total(), second_.total(), negatives_}; }

 private:
  Sums16 first_, second_;
  std::int64_t negatives_ = 0;
};

/// Packs 32 elements to the next word. With a residual, v is left there. The zeros that fill up the
/// last word add nothing to the sums, and their bits are 0.
template <LevelRule rule>
class Pack {
 public:
  explicit Pack(std::byte* words) : words_(words) {}

  HWY_INLINE void operator()(const float* gradient, auto*... residual) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j) {
      Floats v = hn::LoadU(kFloats, gradient + j * kLanes);
      ((v = hn::Add(v, hn::LoadU(kFloats, residual + j * kLanes))), ...);
      (hn::StoreU(v, kFloats, residual + j * kLanes), ...);
      sums_.add(j % kVectorsOf16, v);
      word |= bits_of(hn::Lt(v, hn::Zero(kFloats))) << (j * kLanes);
    }
    sums_.count(word);
    std::memcpy(words_, &word, 4);
    words_ += 4;
  }
  SignSums total() const { return sums_.total(); }

 private:
  Sums<rule> sums_;
  std::byte* words_;
};

/// work(gradient...), with the residual if one is kept.
template <std::size_t kStep, class Work>
HWY_INLINE void in_steps_of(std::span<const float> gradient, std::span<float> residual,
                            Work&& work) {
  residual.empty() ? in_steps<kStep>(gradient.size(), work, gradient.data())
                   : in_steps<kStep>(gradient.size(), work, gradient.data(), residual.data());
}

template <LevelRule rule>
SignSums pack(std::span<const float> gradient, std::span<float> residual, std::byte* words) {
  Pack<rule> packed(words);
  in_steps_of<32>(gradient, residual, packed);
  return packed.total();
}

SignSums pack_signs(std::span<const float> gradient, std::span<float> residual, LevelRule rule,
                    std::byte* words) {
  constexpr std::array by_rule = {pack<LevelRule::none>, pack<LevelRule::mean_magnitude>,
                                  pack<LevelRule::root_mean_square>,
                                  pack<LevelRule::mean_of_class>};
  return by_rule[to_index(rule)](gradient, residual, words);
}

/// The levels of a word's 32 elements: a mask of bits chooses between two constants. These are
/// vectors, because a store to `out` might change a float and would make it be loaded again.
template <Unpack how>
struct UnpackWord {
  UnpackWord(const std::byte* from, SignLevels levels)
      : words(from),
        positive(hn::Set(kFloats, levels.positive)),
        negative(hn::Set(kFloats, levels.negative)) {}
  const std::byte* words;
  Floats positive, negative;

  HWY_INLINE void operator()(float* out) {
    std::uint32_t word;
    std::memcpy(&word, words, 4);
    words += 4;
    for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j) {
      float* at = out + j * kLanes;
      const Floats v = hn::IfThenElse(mask_of_bits(word >> (j * kLanes)), negative, positive);
      if constexpr (how == Unpack::set) hn::StoreU(v, kFloats, at);
      if constexpr (how == Unpack::add) hn::StoreU(hn::Add(hn::LoadU(kFloats, at), v), kFloats, at);
      if constexpr (how == Unpack::subtract)
        hn::StoreU(hn::Sub(hn::LoadU(kFloats, at), v), kFloats, at);
    }
  }
};

template <Unpack how>
void unpack(const std::byte* words, SignLevels levels, std::span<float> out) {
  in_steps<32>(out.size(), UnpackWord<how>(words, levels), out.data());
}

void unpack_signs(const std::byte* words, SignLevels levels, Unpack how, std::span<float> out) {
  constexpr std::array by_how = {unpack<Unpack::set>, unpack<Unpack::add>,
                                 unpack<Unpack::subtract>};
  by_how[to_index(how)](words, levels, out);
}

/// Bit j of the lower half goes to bit 2 j. The halves of each part are moved apart: 8 bits, then
/// 4, 2 and 1. Example of the last two steps: 1011 becomes 10 00 11, which has two zeros between
/// the pairs. That becomes 01 00 01 01.
inline std::uint32_t spread(std::uint32_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  x = (x | x << 4) & 0x0f0f0f0fu;
  x = (x | x << 2) & 0x33333333u;
  return (x | x << 1) & 0x55555555u;
}

/// Writes the word of 16 elements, and leaves the rest of them as residuals. The masks "at or above
/// tau" and "at or below -tau" have a bit an element. The high bit of a code is the first mask's.
/// The low bit is set if neither mask has the element.
class PackTwoBits {
 public:
  PackTwoBits(float tau, std::byte* words)
      : up_(hn::Set(kFloats, tau)), down_(hn::Set(kFloats, -tau)), words_(words) {}

  HWY_INLINE void operator()(const float* gradient, auto*... residual) {
    std::uint32_t positive = 0, negative = 0;
    for (std::size_t i = 0; i < kCodesPerWord; i += kLanes) {
      Floats v = hn::LoadU(kFloats, gradient + i);
      ((v = hn::Add(hn::LoadU(kFloats, residual + i), v)), ...);
      const auto is_up = hn::Ge(v, up_), is_down = hn::Le(v, down_);
      positive |= bits_of(is_up) << i;
      negative |= bits_of(is_down) << i;
      [[maybe_unused]] const auto sent =
          hn::IfThenElse(is_up, up_, hn::IfThenElseZero(is_down, down_));
      (hn::StoreU(hn::Sub(v, sent), kFloats, residual + i), ...);
    }
    const std::uint32_t word = spread(positive) << 1 | spread(~(positive | negative) & 0xffff);
    std::memcpy(words_, &word, sizeof word);
    words_ += sizeof word;
  }

 private:
  static_assert(kCodesPerWord % kLanes == 0);
  Floats up_, down_;
  std::byte* words_;
};

/// The zeros that fill up the last word have a code too, which is taken away.
void encode_two_bit(const Input& input, float tau, std::byte* words) {
  in_steps_of<kCodesPerWord>(input.gradient, input.residual, PackTwoBits(tau, words));
  const std::size_t n = input.gradient.size(), rest = n % kCodesPerWord;
  if (rest == 0) return;
  std::uint32_t last;
  std::memcpy(&last, words + (n - rest) / 4, sizeof last);
  last &= (1u << 2 * rest) - 1;
  std::memcpy(words + (n - rest) / 4, &last, sizeof last);
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

LINERATE_KERNEL(SignSums, pack_signs,
                (std::span<const float> gradient, std::span<float> residual, LevelRule rule,
                 std::byte* words),
                gradient, residual, rule, words)
LINERATE_KERNEL(void, unpack_signs,
                (const std::byte* words, SignLevels levels, Unpack how, std::span<float> out),
                words, levels, how, out)
LINERATE_KERNEL(void, encode_two_bit, (const Input& input, float tau, std::byte* words), input, tau,
                words)

bool has_clean_tail(const std::byte* words, std::size_t n) {
  if (n % 32 == 0) return true;
  std::uint32_t last;
  std::memcpy(&last, words + n / 32 * 4, 4);
  return last >> (n % 32) == 0;
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
