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

template <SignSum kind>
/// The sums that levels need, of the kind that is asked for. The others are not computed.
class Sums {
 public:
  HWY_INLINE void add(std::size_t at, Floats v) {
    if constexpr (kind == SignSum::magnitudes) first_.add(at, widen(hn::Abs(v)));
    if constexpr (kind == SignSum::squares) first_.add(at, multiply(widen(v), widen(v)));
    if constexpr (kind == SignSum::classes) {
      first_.add(at, widen(hn::Max(v, hn::Zero(kFloats))));
      second_.add(at, widen(hn::Min(v, hn::Zero(kFloats))));
    }
  }
  HWY_INLINE void count(std::uint32_t word) {
    if constexpr (kind == SignSum::classes) negatives_ += std::popcount(word);
  }
  SignSums total() const { return {first_.total(), second_.total(), negatives_}; }

 private:
  Sums16 first_, second_;
  std::int64_t negatives_ = 0;
};

/// The word of 32 elements. With a residual, v is left there.
template <SignSum kind, bool adds>
HWY_INLINE std::uint32_t pack_word(const float* gradient, float* residual, Sums<kind>& sums) {
  std::uint32_t word = 0;
  for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j) {
    Floats v = hn::LoadU(kFloats, gradient + j * kLanes);
    if constexpr (adds) {
      v = hn::Add(v, hn::LoadU(kFloats, residual + j * kLanes));
      hn::StoreU(v, kFloats, residual + j * kLanes);
    }
    sums.add(j % kVectorsOf16, v);
    word |= bits_of(hn::Lt(v, hn::Zero(kFloats))) << (j * kLanes);
  }
  sums.count(word);
  return word;
}

template <SignSum kind, bool adds>
SignSums pack(const float* gradient, float* residual, std::size_t n, std::byte* words) {
  Sums<kind> sums;
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32, words += 4) {
    const std::uint32_t word = pack_word<kind, adds>(gradient + i, residual + i, sums);
    std::memcpy(words, &word, 4);
  }
  if (i == n) return sums.total();
  float rest[32] = {}, kept[32] = {};  // zeros add nothing to the sums, and their bits are 0
  std::copy(gradient + i, gradient + n, rest);
  if constexpr (adds) std::copy(residual + i, residual + n, kept);
  const std::uint32_t word = pack_word<kind, adds>(rest, kept, sums);
  if constexpr (adds) std::copy_n(kept, n - i, residual + i);
  std::memcpy(words, &word, 4);
  return sums.total();
}

template <SignSum kind>
SignSums pack_either(const float* gradient, float* residual, std::size_t n, std::byte* words) {
  return residual ? pack<kind, true>(gradient, residual, n, words)
                  : pack<kind, false>(gradient, nullptr, n, words);
}

SignSums pack_words(const float* gradient, float* residual, std::size_t n, SignSum kind,
                    std::byte* words) {
  switch (kind) {
    case SignSum::none:
      return pack_either<SignSum::none>(gradient, residual, n, words);
    case SignSum::magnitudes:
      return pack_either<SignSum::magnitudes>(gradient, residual, n, words);
    case SignSum::squares:
      return pack_either<SignSum::squares>(gradient, residual, n, words);
    case SignSum::classes:
      break;
  }
  return pack_either<SignSum::classes>(gradient, residual, n, words);
}

enum class Unpack : std::uint8_t { set, add, subtract };

template <Unpack how>
/// The levels of a word's 32 elements: a mask of bits chooses between two constants.
HWY_INLINE void unpack_word(std::uint32_t word, SignLevels levels, float* out) {
  const Floats positive = hn::Set(kFloats, levels.positive);
  const Floats negative = hn::Set(kFloats, levels.negative);
  for (std::size_t j = 0; j < 2 * kVectorsOf16; ++j) {
    float* at = out + j * kLanes;
    const Floats v = hn::IfThenElse(mask_of_bits(word >> (j * kLanes)), negative, positive);
    if constexpr (how == Unpack::set) hn::StoreU(v, kFloats, at);
    if constexpr (how == Unpack::add) hn::StoreU(hn::Add(hn::LoadU(kFloats, at), v), kFloats, at);
    if constexpr (how == Unpack::subtract)
      hn::StoreU(hn::Sub(hn::LoadU(kFloats, at), v), kFloats, at);
  }
}

template <Unpack how>
void unpack(const std::byte* words, SignLevels levels, float* out, std::size_t n) {
  std::uint32_t word;
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32, words += 4) {
    std::memcpy(&word, words, 4);
    unpack_word<how>(word, levels, out + i);
  }
  if (i == n) return;
  float rest[32] = {};
  std::copy(out + i, out + n, rest);
  std::memcpy(&word, words, 4);
  unpack_word<how>(word, levels, rest);
  std::copy_n(rest, n - i, out + i);
}

void set_words(const std::byte* words, SignLevels levels, float* out, std::size_t n) {
  unpack<Unpack::set>(words, levels, out, n);
}
void add_words(const std::byte* words, SignLevels levels, float* out, std::size_t n) {
  unpack<Unpack::add>(words, levels, out, n);
}
void subtract_words(const std::byte* words, SignLevels levels, float* out, std::size_t n) {
  unpack<Unpack::subtract>(words, levels, out, n);
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(pack_words);
HWY_EXPORT(set_words);
HWY_EXPORT(add_words);
HWY_EXPORT(subtract_words);

SignSums pack_signs(std::span<const float> v, SignSum kind, std::byte* words) {
  return HWY_DYNAMIC_DISPATCH(pack_words)(v.data(), nullptr, v.size(), kind, words);
}

SignSums add_and_pack_signs(std::span<const float> gradient, std::span<float> residual,
                            SignSum kind, std::byte* words) {
  return HWY_DYNAMIC_DISPATCH(pack_words)(gradient.data(), residual.data(), gradient.size(), kind,
                                          words);
}

void set_signs(const std::byte* words, SignLevels levels, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(set_words)(words, levels, out.data(), out.size());
}
void add_signs(const std::byte* words, SignLevels levels, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(add_words)(words, levels, out.data(), out.size());
}
void subtract_signs(const std::byte* words, SignLevels levels, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(subtract_words)(words, levels, out.data(), out.size());
}

bool has_clean_tail(const std::byte* words, std::size_t n) {
  if (n % 32 == 0) return true;
  std::uint32_t last;
  std::memcpy(&last, words + n / 32 * 4, 4);
  return last >> (n % 32) == 0;
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
