// Shared by kernels that fold values: sums in f64 over 16 fixed lanes. Floating-point sums depend
// on their order. So the order is fixed, and each instruction set gives the same bits. For files
// that Highway compiles once per instruction set; hence the guard that toggles.
//
// Example: elements 3, 19 and 35 are added to lane 3, in this order. AVX-512 has all lanes of f32
// in one vector, AVX2 in two, NEON in four. At the end lanes 0 and 8 are added, 1 and 9, and so on,
// then the halves of these, whatever the vectors.
#if defined(LINERATE_COMPRESS_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LINERATE_COMPRESS_LANES_INL
#undef LINERATE_COMPRESS_LANES_INL
#else
#define LINERATE_COMPRESS_LANES_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "linerate/compress/cast.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes of f32, so that a step of 16 elements is one or more whole vectors.
constexpr hn::CappedTag<float, 16> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
// A vector of f32 is two of f64; without vectors (HWY_SCALAR) one number is one number.
constexpr std::size_t kParts = kLanes > 1 ? 2 : 1;
constexpr hn::CappedTag<double, kLanes / kParts> kDoubles;
constexpr hn::RebindToUnsigned<decltype(kFloats)> kWords;
constexpr hn::RebindToSigned<decltype(kFloats)> kInts;
using Floats = hn::Vec<decltype(kFloats)>;
using Doubles = hn::Vec<decltype(kDoubles)>;
using Words = hn::Vec<decltype(kWords)>;

/// A mask as the lowest bits of a number, and back.
template <class Mask>
HWY_INLINE std::uint32_t bits_of(Mask mask) {
  std::uint8_t bytes[8] = {};  // as many as StoreMaskBits may write
  hn::StoreMaskBits(kFloats, mask, bytes);
  return bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8;
}
HWY_INLINE auto mask_of_bits(std::uint32_t bits) {
  std::uint8_t bytes[8] = {};  // as many as LoadMaskBits may read
  bytes[0] = static_cast<std::uint8_t>(bits);
  bytes[1] = static_cast<std::uint8_t>(bits >> 8);
  if (kLanes < 8) bytes[0] &= (1u << kLanes) - 1;
  return hn::LoadMaskBits(kFloats, bytes);
}

/// A vector of f32 in f64.
struct Wide {
  Doubles part[kParts];
};
template <class Operation>
HWY_INLINE Wide each(const Wide& a, const Wide& b, Operation operation) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = operation(a.part[i], b.part[i]);
  return out;
}
HWY_INLINE Wide add(const Wide& a, const Wide& b) {
  return each(a, b, [](Doubles x, Doubles y) HWY_ATTR { return hn::Add(x, y); });
}
HWY_INLINE Wide subtract(const Wide& a, const Wide& b) {
  return each(a, b, [](Doubles x, Doubles y) HWY_ATTR { return hn::Sub(x, y); });
}
HWY_INLINE Wide multiply(const Wide& a, const Wide& b) {
  return each(a, b, [](Doubles x, Doubles y) HWY_ATTR { return hn::Mul(x, y); });
}
HWY_INLINE Wide wide(double value) {
  Wide out;
  for (Doubles& part : out.part) part = hn::Set(kDoubles, value);
  return out;
}

HWY_INLINE Wide load(const double* from) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i)
    out.part[i] = hn::LoadU(kDoubles, from + i * hn::MaxLanes(kDoubles));
  return out;
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Wide widen(Floats v) { return {{hn::PromoteTo(kDoubles, v)}}; }
HWY_INLINE Floats narrow(const Wide& v) { return hn::DemoteTo(kFloats, v.part[0]); }
#else
HWY_INLINE Wide widen(Floats v) {
  const hn::Half<decltype(kFloats)> half;
  return {
      {hn::PromoteTo(kDoubles, hn::LowerHalf(v)), hn::PromoteTo(kDoubles, hn::UpperHalf(half, v))}};
}
/// Rounded to nearest.
HWY_INLINE Floats narrow(const Wide& v) {
  const hn::Half<decltype(kFloats)> half;
  return hn::Combine(kFloats, hn::DemoteTo(half, v.part[1]), hn::DemoteTo(half, v.part[0]));
}
#endif

/// The elements of an array that are left after whole steps, filled up with zeros to a step.
template <class T, std::size_t kStep>
class Rest {
 public:
  HWY_INLINE Rest(T* from, std::size_t n) : from_(from), n_(n) { std::copy_n(from, n, all_); }
  HWY_INLINE T* data() { return all_; }
  HWY_INLINE void put_back() {
    if constexpr (!std::is_const_v<T>) std::copy_n(all_, n_, from_);
  }

 private:
  T* from_;
  std::size_t n_;
  std::remove_const_t<T> all_[kStep] = {};
};

template <class Work, class... Rests>
HWY_INLINE void on_rests(Work& work, Rests... rests) {
  work(rests.data()...);
  (rests.put_back(), ...);
}

/// Calls work(arrays + i ...) for i = 0, kStep, 2 kStep and so on. The elements that are left pass
/// through arrays that are filled up. So the same instructions treat them as all others, and
/// nothing past the end is read or written. All of it is inlined, so what `work` holds stays in
/// registers.
template <std::size_t kStep, class Work, class... T>
HWY_INLINE void in_steps(std::size_t n, Work&& work, T*... arrays) {
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) work(arrays + i...);
  if (i < n) on_rests(work, Rest<T, kStep>(arrays + i, n - i)...);
}

/// Element i of a run is added to lane i mod 16.
class Sums16 {
 public:
  /// Vector number `at` of a step of 16 elements.
  HWY_INLINE void add(std::size_t at, const Wide& v) {
    lanes_[at] = HWY_NAMESPACE::add(lanes_[at], v);
  }
  /// The sum of all lanes. Lanes i and i + 8 are added, of these sums i and i + 4, then i and i +
  /// 2, then both.
  double total() const {
    Doubles all[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) all[i] = lanes_[i / kParts].part[i % kParts];
    for (std::size_t width = kVectors / 2; width > 0; width /= 2)
      for (std::size_t i = 0; i < width; ++i) all[i] = hn::Add(all[i], all[i + width]);
    double last[kLanes / kParts];
    hn::StoreU(all[0], kDoubles, last);
    for (std::size_t width = kLanes / kParts / 2; width > 0; width /= 2)
      for (std::size_t i = 0; i < width; ++i) last[i] += last[i + width];
    return last[0];
  }

 private:
  static constexpr std::size_t kVectors = 16 / kLanes * kParts;
  Wide lanes_[16 / kLanes] = {};
};

// cast.hpp in vectors.

/// The bits of elements first, first + 1 ... of one rounding block, a vector at a time.
class RoundingBits {
 public:
  RoundingBits(std::uint64_t key, std::uint64_t first)
      : key_(random_bits(key, first / kRoundingBlock)),
        low_(hn::Set(kWords, static_cast<std::uint32_t>(key_))),
        high_(hn::Set(kWords, static_cast<std::uint32_t>(key_ >> 32))),
        counter_(hn::Iota(kWords, static_cast<std::uint32_t>(first % kRoundingBlock))) {}

  HWY_INLINE Words next() {
    const auto times = [](Words v, std::uint32_t factor)
                           HWY_ATTR { return hn::Mul(v, hn::Set(kWords, factor)); };
    Words x = hn::Add(times(counter_, 0x9e3779b9u), low_);
    x = hn::Add(times(hn::Xor(x, hn::ShiftRight<16>(x)), 0x85ebca6bu), high_);
    x = times(hn::Xor(x, hn::ShiftRight<13>(x)), 0xc2b2ae35u);
    counter_ = hn::Add(counter_, hn::Set(kWords, static_cast<std::uint32_t>(kLanes)));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

 private:
  std::uint64_t key_;
  Words low_, high_, counter_;
};

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
