// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/grid.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

constexpr hn::Rebind<std::int8_t, decltype(kFloats)> kSignedCodes;
constexpr hn::Rebind<std::uint8_t, decltype(kFloats)> kUnsignedCodes;

/// The whole number below t, or the one above it. Both are exact, and so is t - floor(t).
/// Stochastic: above with the probability of the fraction. Example: t = 2.25 becomes 3 if a uniform
/// number of [0, 1) is below .25, else 2, so the mean is 2.25. The uniform number has 24 bits, as
/// many as f32 can hold.
template <bool stochastic>
HWY_INLINE Floats round(Floats t, [[maybe_unused]] RoundingBits& bits) {
  const Floats floor = hn::Floor(t);
  const Floats fraction = hn::Sub(t, floor);
  const Floats one = hn::Set(kFloats, 1.0f);
  if constexpr (stochastic) {  // uniform in [0, 1): 24 bits, as many as f32 holds
    const Words upper = hn::ShiftRight<8>(bits.next());
    const Floats uniform =
        hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(kInts, upper)), hn::Set(kFloats, 0x1p-24f));
    return hn::Add(floor, hn::IfThenElseZero(hn::Lt(uniform, fraction), one));
  } else {
    return hn::Add(floor, hn::IfThenElseZero(hn::Ge(fraction, hn::Set(kFloats, 0.5f)), one));
  }
}

template <bool is_signed, bool stochastic>
/// Turns values into codes. The distance from the base and its product with 1 / unit are in f64. In
/// f32 the distance from -3e38 to 3e38 would be infinite. The level is cut at `top` before and
/// after rounding, because a product may be rounded above it.
class ToCodes {
 public:
  ToCodes(int top, const Rounding& rounding)
      : top_(hn::Set(kFloats, static_cast<float>(top))), bits_(rounding.key, rounding.first) {}

  HWY_INLINE void operator()(const float* from, std::int8_t* to) {
    const Floats v = hn::LoadU(kFloats, from);
    const Wide distance = is_signed ? widen(hn::Abs(v)) : subtract(widen(v), base_);
    const Floats t = hn::Min(narrow(multiply(distance, inverse_)), top_);
    const Floats level = hn::Min(round<stochastic>(t, bits_), top_);
    if constexpr (is_signed) {
      const Floats code = hn::IfThenElse(hn::Lt(v, hn::Zero(kFloats)), hn::Neg(level), level);
      hn::StoreU(hn::DemoteTo(kSignedCodes, hn::ConvertTo(kInts, code)), kSignedCodes, to);
    } else {
      hn::StoreU(hn::DemoteTo(kUnsignedCodes, hn::ConvertTo(kInts, level)), kUnsignedCodes,
                 reinterpret_cast<std::uint8_t*>(to));
    }
  }
  /// The codes of one bucket. Buckets but the last are whole vectors: so are the stream's numbers.
  HWY_INLINE void all(const float* v, std::size_t n, const Grid& grid, std::int8_t* codes) {
    base_ = wide(grid.base);
    inverse_ = wide(grid.unit > 0 ? 1 / grid.unit : 0);
    in_steps<kLanes>(n, *this, v, codes);
  }

 private:
  Wide base_, inverse_;
  Floats top_;
  RoundingBits bits_;
};

/// work(first, elements, grid) for each bucket.
template <class Work>
HWY_INLINE void for_buckets(std::size_t n, const Grids& grids, Work&& work) {
  for (std::size_t first = 0, b = 0; first < n; first += grids.bucket, ++b)
    work(first, std::min(grids.bucket, n - first), grids.of_bucket[b]);
}

template <bool is_signed, bool stochastic>
void to_codes_as(const float* v, std::size_t n, const Grids& grids, const Rounding& rounding,
                 std::int8_t* codes) {
  ToCodes<is_signed, stochastic> to(grids.top, rounding);
  for_buckets(n, grids, [&](std::size_t first, std::size_t count, const Grid& grid) HWY_ATTR {
    to.all(v + first, count, grid, codes + first);
  });
}

void codes_of(const float* v, std::size_t n, const Grids& grids, const Rounding& rounding,
              std::int8_t* codes) {
  const auto chosen =
      grids.is_signed
          ? (rounding.is_stochastic ? to_codes_as<true, true> : to_codes_as<true, false>)
          : (rounding.is_stochastic ? to_codes_as<false, true> : to_codes_as<false, false>);
  chosen(v, n, grids, rounding, codes);
}

template <bool is_signed, bool adds>
/// Adds or subtracts the points of codes, base + code * unit, in f64 and rounded once.
class FromCodes {
 public:
  explicit FromCodes(const Grid& grid) : base_(wide(grid.base)), unit_(wide(grid.unit)) {}

  HWY_INLINE void operator()(const std::int8_t* from, float* to) const {
    const Wide point = add(base_, multiply(widen(load(from)), unit_));
    const Floats out = hn::LoadU(kFloats, to);
    hn::StoreU(adds ? hn::Add(out, narrow(point)) : hn::Sub(out, narrow(point)), kFloats, to);
  }

 private:
  static HWY_INLINE Floats load(const std::int8_t* from) {
    if constexpr (is_signed)
      return hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(kSignedCodes, from)));
    else
      return hn::ConvertTo(
          kFloats, hn::PromoteTo(kInts, hn::LoadU(kUnsignedCodes,
                                                  reinterpret_cast<const std::uint8_t*>(from))));
  }
  Wide base_, unit_;
};

template <bool is_signed, bool adds>
void from_codes_as(const std::int8_t* codes, const Grids& grids, float* out, std::size_t n) {
  for_buckets(n, grids, [&](std::size_t first, std::size_t count, const Grid& grid) HWY_ATTR {
    in_steps<kLanes>(count, FromCodes<is_signed, adds>(grid), codes + first, out + first);
  });
}
void add_points(const std::int8_t* codes, const Grids& grids, bool subtracts, float* out,
                std::size_t n) {
  const auto chosen = grids.is_signed
                          ? (subtracts ? from_codes_as<true, false> : from_codes_as<true, true>)
                          : (subtracts ? from_codes_as<false, false> : from_codes_as<false, true>);
  chosen(codes, grids, out, n);
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(codes_of);
HWY_EXPORT(add_points);

void to_codes(std::span<const float> v, const Grids& grids, const Rounding& rounding,
              std::int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(codes_of)(v.data(), v.size(), grids, rounding, codes);
}
void add_codes(const std::int8_t* codes, const Grids& grids, bool subtracts, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(add_points)(codes, grids, subtracts, out.data(), out.size());
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
