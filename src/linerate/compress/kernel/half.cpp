// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/half.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/half_vectors-inl.hpp"
// clang-format on

#include <algorithm>
#include <array>

#include "linerate/compress/cast.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using linerate::HWY_NAMESPACE::Brain;
using linerate::HWY_NAMESPACE::Half;

constexpr hn::ScalableTag<float> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);

template <class Kind>
/// Gradients times `share`, in 16 bits. rest() takes the last elements through arrays that are
/// filled up with zeros.
struct Scale {
  const float* gradient;
  float share;
  std::uint16_t* out;

  void vector(std::size_t i) const { of(gradient + i, out + i); }
  void rest(std::size_t i, std::size_t count) const {
    std::array<float, kLanes> in{};
    std::array<std::uint16_t, kLanes> narrow;
    std::copy_n(gradient + i, count, in.begin());
    of(in.data(), narrow.data());
    std::copy_n(narrow.begin(), count, out + i);
  }
  void of(const float* in, std::uint16_t* to) const {
    Kind::narrow(kFloats, hn::Mul(hn::LoadU(kFloats, in), hn::Set(kFloats, share)), to);
  }
};

template <class Kind>
/// The same with error feedback. The sent number is read back from the 16 bits, so that the
/// residual has the rounding too. Example in f16 with 4 ranks: v = 1.0002 is sent as 0.25, which
/// stands for 1, and .0002 stays.
struct ScaleAndKeep {
  const float* gradient;
  float* residual;
  HalfScale scale;
  std::uint16_t* out;
  float* largest;  // [kLanes]

  void vector(std::size_t i) const { of(gradient + i, residual + i, out + i); }
  void rest(std::size_t i, std::size_t count) const {
    std::array<float, kLanes> in{}, kept{};
    std::array<std::uint16_t, kLanes> narrow;
    std::copy_n(gradient + i, count, in.begin());
    std::copy_n(residual + i, count, kept.begin());
    of(in.data(), kept.data(), narrow.data());
    std::copy_n(kept.begin(), count, residual + i);
    std::copy_n(narrow.begin(), count, out + i);
  }
  void of(const float* in, float* kept, std::uint16_t* to) const {
    const auto top = hn::Set(kFloats, scale.limit);
    const auto v = hn::Add(hn::LoadU(kFloats, in), hn::LoadU(kFloats, kept));
    const auto cut = hn::Max(hn::Neg(top), hn::Min(top, v));
    Kind::narrow(kFloats, hn::Mul(cut, hn::Set(kFloats, scale.share)), to);
    const auto sent = hn::Mul(Kind::widen(kFloats, to), hn::Set(kFloats, scale.back));
    hn::StoreU(hn::Sub(v, sent), kFloats, kept);
    hn::StoreU(hn::Max(hn::LoadU(kFloats, largest), hn::Abs(v)), kFloats, largest);
  }
};

/// Whole vectors, then what is left through one that is filled up with zeros.
template <class Work>
void for_all(std::size_t n, const Work& work) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) work.vector(i);
  if (i < n) work.rest(i, n - i);
}

void scale_all(const float* gradient, std::size_t n, float share, bool brain, std::uint16_t* out) {
  if (brain)
    for_all(n, Scale<Brain>{gradient, share, out});
  else
    for_all(n, Scale<Half>{gradient, share, out});
}

float scale_and_keep(const float* gradient, float* residual, std::size_t n, HalfScale scale,
                     bool brain, std::uint16_t* out) {
  std::array<float, kLanes> largest{};
  if (brain)
    for_all(n, ScaleAndKeep<Brain>{gradient, residual, scale, out, largest.data()});
  else
    for_all(n, ScaleAndKeep<Half>{gradient, residual, scale, out, largest.data()});
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace
}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(scale_all);
HWY_EXPORT(scale_and_keep);

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

void widen(const std::byte* in, DType half, std::span<float> out) {
  cast(in, half, out.data(), DType::f32, out.size());
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
