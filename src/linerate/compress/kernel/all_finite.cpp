// Whether all values are finite, without a branch a value. Compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/all_finite.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

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

HWY_EXPORT(largest_bits);

std::uint32_t largest_magnitude_bits(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(largest_bits)(values.data(), values.size());
}
bool all_finite(std::span<const float> values) {
  return largest_magnitude_bits(values) < 0x7f800000u;
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
