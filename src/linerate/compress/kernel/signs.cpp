// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/signs.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/lanes-inl.hpp"
#include "linerate/compress/kernel/kernels.hpp"
// clang-format on

#include <algorithm>
#include <bit>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

constexpr std::size_t kVectorsOf16 = 16 / kLanes;

template <LevelRule rule>
/// The sums that levels need, of the kind that is asked for. The others are not computed.
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

  HWY_INLINE void operator()(const float* v) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j)
      word |= add(j, hn::LoadU(kFloats, v + j * kLanes));
    put(word);
  }
  HWY_INLINE void operator()(const float* gradient, float* residual) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j) {
      const Floats v = hn::Add(hn::LoadU(kFloats, gradient + j * kLanes),
                               hn::LoadU(kFloats, residual + j * kLanes));
      hn::StoreU(v, kFloats, residual + j * kLanes);
      word |= add(j, v);
    }
    put(word);
  }
  SignSums total() const { return sums_.total(); }

 private:
  /// Vector number `j` of a word; returns its bits.
  HWY_INLINE std::uint32_t add(std::size_t j, Floats v) {
    sums_.add(j % kVectorsOf16, v);
    return bits_of(hn::Lt(v, hn::Zero(kFloats))) << (j * kLanes);
  }
  HWY_INLINE void put(std::uint32_t word) {
    sums_.count(word);
    std::memcpy(words_, &word, 4);
    words_ += 4;
  }

  Sums<rule> sums_;
  std::byte* words_;
};

template <LevelRule rule>
SignSums pack(const float* gradient, float* residual, std::size_t n, std::byte* words) {
  Pack<rule> packed(words);
  residual ? in_steps<32>(n, packed, gradient, residual) : in_steps<32>(n, packed, gradient);
  return packed.total();
}

SignSums pack_words(const float* gradient, float* residual, std::size_t n, LevelRule rule,
                    std::byte* words) {
  switch (rule) {
    case LevelRule::none:
      return pack<LevelRule::none>(gradient, residual, n, words);
    case LevelRule::mean_magnitude:
      return pack<LevelRule::mean_magnitude>(gradient, residual, n, words);
    case LevelRule::root_mean_square:
      return pack<LevelRule::root_mean_square>(gradient, residual, n, words);
    case LevelRule::mean_of_class:
      break;
  }
  return pack<LevelRule::mean_of_class>(gradient, residual, n, words);
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

void unpack_words(const std::byte* words, SignLevels levels, Unpack how, float* out,
                  std::size_t n) {
  switch (how) {
    case Unpack::set:
      return in_steps<32>(n, UnpackWord<Unpack::set>(words, levels), out);
    case Unpack::add:
      return in_steps<32>(n, UnpackWord<Unpack::add>(words, levels), out);
    case Unpack::subtract:
      return in_steps<32>(n, UnpackWord<Unpack::subtract>(words, levels), out);
  }
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(pack_words);
HWY_EXPORT(unpack_words);

SignSums pack_signs(std::span<const float> gradient, std::span<float> residual, LevelRule rule,
                    std::byte* words) {
  float* const kept = residual.empty() ? nullptr : residual.data();
  return HWY_DYNAMIC_DISPATCH(pack_words)(gradient.data(), kept, gradient.size(), rule, words);
}

void unpack_signs(const std::byte* words, SignLevels levels, Unpack how, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(unpack_words)(words, levels, how, out.data(), out.size());
}

bool has_clean_tail(const std::byte* words, std::size_t n) {
  if (n % 32 == 0) return true;
  std::uint32_t last;
  std::memcpy(&last, words + n / 32 * 4, 4);
  return last >> (n % 32) == 0;
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
