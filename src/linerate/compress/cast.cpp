// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/cast.cpp"
#include <hwy/foreach_target.h>  // first: includes this file once per target
// clang-format off
#include <hwy/highway.h>

#include "linerate/compress/cast.hpp"
#include "linerate/core/half_vectors-inl.hpp"
// clang-format on

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "linerate/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using linerate::HWY_NAMESPACE::Brain;
using linerate::HWY_NAMESPACE::Half;

constexpr std::size_t kMostLanes = 256;  // of f32, of any instruction set (scalable ones: 2048 bit)

/// Whole vectors first. The elements that are left pass through one vector that is filled up with
/// zeros. So the same instructions round them as all others. Reading or writing past the end of the
/// arrays is never needed.
template <class Kind>
void narrow_all(const float* in, std::uint16_t* out, std::size_t n) {
  const hn::CappedTag<float, kMostLanes> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) Kind::narrow(d, hn::LoadU(d, in + i), out + i);
  std::array<float, kMostLanes> rest{};
  std::array<std::uint16_t, kMostLanes> narrowed;
  std::copy(in + i, in + n, rest.begin());
  Kind::narrow(d, hn::LoadU(d, rest.data()), narrowed.data());
  std::copy_n(narrowed.begin(), n - i, out + i);
}

template <class Kind>
/// As narrow_all(), in the other direction.
void widen_all(const std::uint16_t* in, float* out, std::size_t n) {
  const hn::CappedTag<float, kMostLanes> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Kind::widen(d, in + i), d, out + i);
  std::array<std::uint16_t, kMostLanes> rest{};
  std::array<float, kMostLanes> widened;
  std::copy(in + i, in + n, rest.begin());
  hn::StoreU(Kind::widen(d, rest.data()), d, widened.data());
  std::copy_n(widened.begin(), n - i, out + i);
}

/// Between f32 and the half type, in the direction that `narrows` says.
void cast_vectors(const void* in, void* out, std::size_t n, bool narrows, DType half) {
  const bool brain = half == DType::bf16;
  if (narrows) {
    const auto* from = static_cast<const float*>(in);
    auto* to = static_cast<std::uint16_t*>(out);
    brain ? narrow_all<Brain>(from, to, n) : narrow_all<Half>(from, to, n);
  } else {
    const auto* from = static_cast<const std::uint16_t*>(in);
    auto* to = static_cast<float*>(out);
    brain ? widen_all<Brain>(from, to, n) : widen_all<Half>(from, to, n);
  }
}

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(cast_vectors);

namespace {
bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }
}  // namespace

bool can_cast(DType from, DType to) {
  return (from == DType::f32 && is_half(to)) || (is_half(from) && to == DType::f32);
}

void cast(const void* in, DType from, void* out, DType to, std::size_t elements) {
  if (!can_cast(from, to))
    throw UsageError(fmt::format("cast: expected f32 to f16 or bf16, or back, found {} to {}",
                                 name_of(from), name_of(to)));
  const bool narrows = from == DType::f32;
  HWY_DYNAMIC_DISPATCH(cast_vectors)(in, out, elements, narrows, narrows ? to : from);
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
