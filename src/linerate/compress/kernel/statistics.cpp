// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/statistics.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/lanes-inl.hpp"
#include "linerate/compress/kernel/kernels.hpp"
// clang-format on

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {

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

void all_squares(const float* v, std::size_t n, std::size_t bucket, double* out) {
  for (std::size_t first = 0; first < n; first += bucket)
    *out++ = squares(v + first, std::min(bucket, n - first));
}
void all_ranges(const float* v, std::size_t n, std::size_t bucket, Range* out) {
  for (std::size_t first = 0; first < n; first += bucket)
    *out++ = range(v + first, std::min(bucket, n - first));
}

Spread spread(const float* v, std::size_t n) {
  Sums16 sums, square_sums;
  Floats largest = hn::Zero(kFloats);
  for_16(v, n, 0.0f, [&](std::size_t at, Floats x) HWY_ATTR {
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
std::uint32_t largest_bits(const float* in, std::size_t n) {
  const hn::ScalableTag<std::int32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* bits = reinterpret_cast<const std::int32_t*>(in);
  const auto magnitude = hn::Set(d, 0x7fffffff);
  auto a = hn::Zero(d), b = a, e = a, f = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, hn::And(magnitude, hn::LoadU(d, bits + i)));
    b = hn::Max(b, hn::And(magnitude, hn::LoadU(d, bits + i + lanes)));
    e = hn::Max(e, hn::And(magnitude, hn::LoadU(d, bits + i + 2 * lanes)));
    f = hn::Max(f, hn::And(magnitude, hn::LoadU(d, bits + i + 3 * lanes)));
  }
  a = hn::Max(hn::Max(a, b), hn::Max(e, f));
  std::int32_t largest = hn::GetLane(hn::MaxOfLanes(d, a));
  for (; i < n; ++i) {
    std::int32_t last;
    std::memcpy(&last, in + i, sizeof last);
    largest = std::max(largest, last & 0x7fffffff);
  }
  return static_cast<std::uint32_t>(largest);
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(all_squares);
HWY_EXPORT(all_ranges);
HWY_EXPORT(spread);
HWY_EXPORT(largest_bits);

void sums_of_squares(std::span<const float> v, std::size_t bucket, double* out) {
  HWY_DYNAMIC_DISPATCH(all_squares)(v.data(), v.size(), bucket, out);
}
void ranges_of(std::span<const float> v, std::size_t bucket, Range* out) {
  HWY_DYNAMIC_DISPATCH(all_ranges)(v.data(), v.size(), bucket, out);
}
Spread spread_of(std::span<const float> v) {
  return HWY_DYNAMIC_DISPATCH(spread)(v.data(), v.size());
}

std::uint32_t largest_magnitude_bits(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(largest_bits)(values.data(), values.size());
}
bool all_finite(std::span<const float> values) {
  return largest_magnitude_bits(values) < 0x7f800000u;
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
