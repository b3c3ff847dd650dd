// Codes on grids, and the statistics of values that grids are chosen by. Compiled once per
// instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/grid.cpp"
#include "linerate/compress/kernel/fixed_lanes-inl.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "linerate/compress/kernel/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

template <bool is_signed>
using Code = std::conditional_t<is_signed, std::int8_t, std::uint8_t>;
template <bool is_signed>
constexpr hn::Rebind<Code<is_signed>, decltype(kFloats)> kCodes;

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

/// Turns values into codes. The distance from the base and its product with 1 / unit are in f64. In
/// f32 the distance from -3e38 to 3e38 would be infinite. The level is cut at `top` before and
/// after rounding, because a product may be rounded above it.
template <bool is_signed, bool stochastic>
class ToCodes {
 public:
  ToCodes(int top, const Rounding& rounding)
      : top_(hn::Set(kFloats, static_cast<float>(top))), bits_(rounding.key, rounding.first) {}

  HWY_INLINE void operator()(const float* from, std::int8_t* to) {
    const Floats v = hn::LoadU(kFloats, from);
    const Wide distance = is_signed ? widen(hn::Abs(v)) : subtract(widen(v), base_);
    const Floats t = hn::Min(narrow(multiply(distance, inverse_)), top_);
    Floats code = hn::Min(round<stochastic>(t, bits_), top_);
    if constexpr (is_signed)
      code = hn::IfThenElse(hn::Lt(v, hn::Zero(kFloats)), hn::Neg(code), code);
    hn::StoreU(hn::DemoteTo(kCodes<is_signed>, hn::ConvertTo(kInts, code)), kCodes<is_signed>,
               reinterpret_cast<Code<is_signed>*>(to));
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

/// work(part, bucket's number) for each bucket of v.
template <class T, class Work>
HWY_INLINE void for_buckets(std::span<T> v, std::size_t bucket, Work&& work) {
  for (std::size_t first = 0, b = 0; first < v.size(); first += bucket, ++b)
    work(v.subspan(first, std::min(bucket, v.size() - first)), b);
}

template <bool is_signed, bool stochastic>
void to_codes_as(std::span<const float> v, const Grids& grids, const Rounding& rounding,
                 std::int8_t* codes) {
  ToCodes<is_signed, stochastic> to(grids.top, rounding);
  for_buckets(v, grids.bucket, [&](std::span<const float> part, std::size_t b) HWY_ATTR {
    to.all(part.data(), part.size(), grids.of_bucket[b], codes + b * grids.bucket);
  });
}

void to_codes(std::span<const float> v, const Grids& grids, const Rounding& rounding,
              std::int8_t* codes) {
  const auto chosen =
      grids.is_signed
          ? (rounding.is_stochastic ? to_codes_as<true, true> : to_codes_as<true, false>)
          : (rounding.is_stochastic ? to_codes_as<false, true> : to_codes_as<false, false>);
  chosen(v, grids, rounding, codes);
}

/// Adds or subtracts the points of codes, base + code * unit, in f64 and rounded once.
template <bool is_signed, bool adds>
class FromCodes {
 public:
  explicit FromCodes(const Grid& grid) : base_(wide(grid.base)), unit_(wide(grid.unit)) {}

  HWY_INLINE void operator()(const std::int8_t* from, float* to) const {
    const auto codes = hn::LoadU(kCodes<is_signed>, reinterpret_cast<const Code<is_signed>*>(from));
    const Floats code = hn::ConvertTo(kFloats, hn::PromoteTo(kInts, codes));
    const Floats point = narrow(add(base_, multiply(widen(code), unit_)));
    const Floats out = hn::LoadU(kFloats, to);
    hn::StoreU(adds ? hn::Add(out, point) : hn::Sub(out, point), kFloats, to);
  }

 private:
  Wide base_, unit_;
};

template <bool is_signed, bool adds>
void from_codes_as(const std::int8_t* codes, const Grids& grids, std::span<float> out) {
  for_buckets(out, grids.bucket, [&](std::span<float> part, std::size_t b) HWY_ATTR {
    in_steps<kLanes>(part.size(), FromCodes<is_signed, adds>(grids.of_bucket[b]),
                     codes + b * grids.bucket, part.data());
  });
}
void add_codes(const std::int8_t* codes, const Grids& grids, bool subtracts, std::span<float> out) {
  const auto chosen = grids.is_signed
                          ? (subtracts ? from_codes_as<true, false> : from_codes_as<true, true>)
                          : (subtracts ? from_codes_as<false, false> : from_codes_as<false, true>);
  chosen(codes, grids, out);
}

/// Calls take(at, vector) for vector number `at` of every 16 elements. The last step is filled up
/// with `fill`, a value that changes no answer: zero for sums, the first value for a range.
template <class Take>
HWY_INLINE void for_16(const float* v, std::size_t n, float fill, Take&& take) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::size_t at = 0; at < 16 / kLanes; ++at)
      take(at, hn::LoadU(kFloats, v + i + at * kLanes));
  if (i == n) return;
  float rest[16];
  std::fill(std::copy(v + i, v + n, rest), rest + 16, fill);
  for (std::size_t at = 0; at < 16 / kLanes; ++at) take(at, hn::LoadU(kFloats, rest + at * kLanes));
}

HWY_INLINE double squares(const float* v, std::size_t n) {
  Sums16 sums;
  for_16(v, n, 0.0f, [&](std::size_t at, Floats x) HWY_ATTR {
    const Wide w = widen(x);
    sums.add(at, multiply(w, w));
  });
  return sums.total();
}

HWY_INLINE Range range(const float* v, std::size_t n) {
  Floats least = hn::Set(kFloats, v[0]), largest = least;
  for_16(v, n, v[0], [&](std::size_t, Floats x) HWY_ATTR {
    least = hn::Min(least, x);
    largest = hn::Max(largest, x);
  });
  // -0 + 0 = +0: which of two zeros an instruction calls the smaller is its own choice.
  return {hn::GetLane(hn::MinOfLanes(kFloats, least)) + 0.0f,
          hn::GetLane(hn::MaxOfLanes(kFloats, largest)) + 0.0f};
}

void sums_of_squares(std::span<const float> v, std::size_t bucket, double* out) {
  for_buckets(v, bucket, [&](std::span<const float> part, std::size_t b) HWY_ATTR {
    out[b] = squares(part.data(), part.size());
  });
}
void ranges_of(std::span<const float> v, std::size_t bucket, Range* out) {
  for_buckets(v, bucket, [&](std::span<const float> part, std::size_t b) HWY_ATTR {
    out[b] = range(part.data(), part.size());
  });
}

Spread spread_of(std::span<const float> v) {
  Sums16 sums, square_sums;
  Floats largest = hn::Zero(kFloats);
  for_16(v.data(), v.size(), 0.0f, [&](std::size_t at, Floats x) HWY_ATTR {
    const Wide w = widen(x);
    sums.add(at, w);
    square_sums.add(at, multiply(w, w));
    largest = hn::Max(largest, hn::Abs(x));
  });
  return {sums.total(), square_sums.total(), hn::GetLane(hn::MaxOfLanes(kFloats, largest))};
}

/// The largest of the values' bits without sign, which are at least 0x7f800000 for an infinity or a
/// NaN. Integers are compared, because a maximum of floats may drop a NaN. Four maxima run side by
/// side, so that no comparison waits for the one before it.
std::uint32_t largest_magnitude_bits(std::span<const float> values) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  hn::Vec<decltype(di)> largest[4] = {hn::Zero(di), hn::Zero(di), hn::Zero(di), hn::Zero(di)};
  const auto take = [&](const float* at) HWY_ATTR {
    for (std::size_t k = 0; k < 4; ++k, at += hn::Lanes(d))
      largest[k] = hn::Max(largest[k], hn::And(magnitude, hn::BitCast(di, hn::LoadU(d, at))));
  };
  in_steps<4 * hn::MaxLanes(hn::ScalableTag<float>())>(values.size(), take, values.data());
  const auto all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, all)));
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

LINERATE_KERNEL(void, to_codes,
                (std::span<const float> v, const Grids& grids, const Rounding& rounding,
                 std::int8_t* codes),
                v, grids, rounding, codes)
LINERATE_KERNEL(void, add_codes,
                (const std::int8_t* codes, const Grids& grids, bool subtracts,
                 std::span<float> out),
                codes, grids, subtracts, out)
LINERATE_KERNEL(void, sums_of_squares, (std::span<const float> v, std::size_t bucket, double* out),
                v, bucket, out)
LINERATE_KERNEL(void, ranges_of, (std::span<const float> v, std::size_t bucket, Range* out), v,
                bucket, out)
LINERATE_KERNEL(Spread, spread_of, (std::span<const float> v), v)
LINERATE_KERNEL(std::uint32_t, largest_magnitude_bits, (std::span<const float> values), values)

bool all_finite(std::span<const float> values) {
  return largest_magnitude_bits(values) < 0x7f800000u;
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
