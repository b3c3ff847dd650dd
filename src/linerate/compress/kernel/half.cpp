// Casts to 16 bits and back, plain or with what error feedback needs. Compiled once per instruction
// set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/half.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/kernel/lanes-inl.hpp"
#include "linerate/core/half_vectors-inl.hpp"
// clang-format on

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "linerate/compress/cast.hpp"
#include "linerate/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {
using linerate::HWY_NAMESPACE::Brain;
using linerate::HWY_NAMESPACE::Half;

template <class Kind>
struct Narrow {
  HWY_INLINE void operator()(const float* in, std::uint16_t* out) const {
    Kind::narrow(kFloats, hn::LoadU(kFloats, in), out);
  }
};
template <class Kind>
struct Widen {
  HWY_INLINE void operator()(const std::uint16_t* in, float* out) const {
    hn::StoreU(Kind::widen(kFloats, in), kFloats, out);
  }
};

/// Gradients times `share`, in 16 bits.
template <class Kind>
struct Scale {
  float share;
  HWY_INLINE void operator()(const float* gradient, std::uint16_t* out) const {
    Kind::narrow(kFloats, hn::Mul(hn::LoadU(kFloats, gradient), hn::Set(kFloats, share)), out);
  }
};

/// The same with error feedback. The sent number is read back from the 16 bits, so that the
/// residual has the rounding too. Example in f16 with 4 ranks: v = 1.0002 is sent as 0.25, which
/// stands for 1, and .0002 stays.
template <class Kind>
struct ScaleAndKeep {
  HalfScale scale;
  float* largest;  // [kLanes]

  HWY_INLINE void operator()(const float* gradient, float* residual, std::uint16_t* out) const {
    const auto top = hn::Set(kFloats, scale.limit);
    const auto v = hn::Add(hn::LoadU(kFloats, gradient), hn::LoadU(kFloats, residual));
    const auto cut = hn::Max(hn::Neg(top), hn::Min(top, v));
    Kind::narrow(kFloats, hn::Mul(cut, hn::Set(kFloats, scale.share)), out);
    const auto sent = hn::Mul(Kind::widen(kFloats, out), hn::Set(kFloats, scale.back));
    hn::StoreU(hn::Sub(v, sent), kFloats, residual);
    hn::StoreU(hn::Max(hn::LoadU(kFloats, largest), hn::Abs(v)), kFloats, largest);
  }
};

void narrow_all(const float* in, std::size_t n, bool brain, std::uint16_t* out) {
  brain ? in_steps<kLanes>(n, Narrow<Brain>(), in, out)
        : in_steps<kLanes>(n, Narrow<Half>(), in, out);
}
void widen_all(const std::uint16_t* in, std::size_t n, bool brain, float* out) {
  brain ? in_steps<kLanes>(n, Widen<Brain>(), in, out)
        : in_steps<kLanes>(n, Widen<Half>(), in, out);
}

void scale_all(const float* gradient, std::size_t n, float share, bool brain, std::uint16_t* out) {
  brain ? in_steps<kLanes>(n, Scale<Brain>{share}, gradient, out)
        : in_steps<kLanes>(n, Scale<Half>{share}, gradient, out);
}

float scale_and_keep(const float* gradient, float* residual, std::size_t n, HalfScale scale,
                     bool brain, std::uint16_t* out) {
  std::array<float, kLanes> largest{};
  brain ? in_steps<kLanes>(n, ScaleAndKeep<Brain>{scale, largest.data()}, gradient, residual, out)
        : in_steps<kLanes>(n, ScaleAndKeep<Half>{scale, largest.data()}, gradient, residual, out);
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(narrow_all);
HWY_EXPORT(widen_all);
HWY_EXPORT(scale_all);
HWY_EXPORT(scale_and_keep);

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
  if (from == DType::f32) {
    HWY_DYNAMIC_DISPATCH(narrow_all)
    (static_cast<const float*>(in), elements, to == DType::bf16, static_cast<std::uint16_t*>(out));
  } else {
    HWY_DYNAMIC_DISPATCH(widen_all)
    (static_cast<const std::uint16_t*>(in), elements, from == DType::bf16,
     static_cast<float*>(out));
  }
}

void narrow_scaled(std::span<const float> gradient, float share, DType half, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(scale_all)
  (gradient.data(), gradient.size(), share, half == DType::bf16,
   reinterpret_cast<std::uint16_t*>(out));
}

float narrow_scaled(std::span<const float> gradient, std::span<float> residual,
                    const HalfScale& scale, DType half, std::byte* out) {
  return HWY_DYNAMIC_DISPATCH(scale_and_keep)(gradient.data(), residual.data(), gradient.size(),
                                              scale, half == DType::bf16,
                                              reinterpret_cast<std::uint16_t*>(out));
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
