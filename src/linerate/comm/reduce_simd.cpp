// Sums of arrived chunks with Highway: compiled once per instruction set, picked at run time. The
// functions return how many elements they did, which is a multiple of the vector's length; the
// scalar twin does the rest.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/comm/reduce_simd.cpp"
#include <hwy/foreach_target.h>  // first: includes this file once per target
// clang-format off
#include <hwy/highway.h>

#include <cstddef>

#include "linerate/core/index.hpp"
#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/half_vectors-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linerate::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
V combine(D, Reduce op, V a, V b) {
  if (op == Reduce::sum) return hn::Add(a, b);
  // Compares and selects, as the scalar twin does: of equal zeros `a` is kept, and a NaN is the
  // result.
  const V chosen =
      op == Reduce::max ? hn::IfThenElse(hn::Lt(a, b), b, a) : hn::IfThenElse(hn::Lt(b, a), b, a);
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, chosen));
  }
  return chosen;
}

/// Combines whole vectors; returns how many elements are done.
template <typename T>
std::size_t combine_all(void* out, const void* a, const void* b, std::size_t n, Reduce op) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  std::size_t i = 0;
  if (op == Reduce::sum) {  // the hot loop, four vectors at a time
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const auto v0 = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i));
      const auto v1 = hn::Add(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes));
      const auto v2 = hn::Add(hn::LoadU(d, x + i + 2 * lanes), hn::LoadU(d, y + i + 2 * lanes));
      const auto v3 = hn::Add(hn::LoadU(d, x + i + 3 * lanes), hn::LoadU(d, y + i + 3 * lanes));
      hn::StoreU(v0, d, z + i);
      hn::StoreU(v1, d, z + i + lanes);
      hn::StoreU(v2, d, z + i + 2 * lanes);
      hn::StoreU(v3, d, z + i + 3 * lanes);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(combine(d, op, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, z + i);
  }
  return i;
}

template <class Kind>
std::size_t combine_half(void* out, const void* a, const void* b, std::size_t n, Reduce op) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  auto* z = static_cast<std::uint16_t*>(out);
  std::size_t i = 0;
  if (op == Reduce::sum) {
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto v0 = hn::Add(Kind::widen(d, x + i), Kind::widen(d, y + i));
      const auto v1 = hn::Add(Kind::widen(d, x + i + lanes), Kind::widen(d, y + i + lanes));
      Kind::narrow(d, v0, z + i);
      Kind::narrow(d, v1, z + i + lanes);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    Kind::narrow(d, combine(d, op, Kind::widen(d, x + i), Kind::widen(d, y + i)), z + i);
  }
  return i;
}

std::size_t reduce_vectors(void* out, const void* a, const void* b, std::size_t n, DType dtype,
                           Reduce op) {
  switch (dtype) {
    case DType::f32:
      return combine_all<float>(out, a, b, n, op);
    case DType::f64:
      return combine_all<double>(out, a, b, n, op);
    case DType::f16:
      return combine_half<linerate::HWY_NAMESPACE::Half>(out, a, b, n, op);
    case DType::bf16:
      return combine_half<linerate::HWY_NAMESPACE::Brain>(out, a, b, n, op);
    case DType::i32:
      return combine_all<std::int32_t>(out, a, b, n, op);
    case DType::i64:
      return combine_all<std::int64_t>(out, a, b, n, op);
    case DType::u8:
      return combine_all<std::uint8_t>(out, a, b, n, op);
  }
  return 0;
}

template <typename T>
std::size_t scale_all(void* out, const void* in, double scale, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, static_cast<T>(scale));
  const auto* x = static_cast<const T*>(in);
  auto* z = static_cast<T*>(out);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, z + i);
  return i;
}

template <class Kind>
std::size_t scale_half(void* out, const void* in, double scale, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, static_cast<float>(scale));
  const auto* x = static_cast<const std::uint16_t*>(in);
  auto* z = static_cast<std::uint16_t*>(out);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) Kind::narrow(d, hn::Mul(Kind::widen(d, x + i), factor), z + i);
  return i;
}

std::size_t scale_vectors(void* out, const void* in, double scale, std::size_t n, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return scale_all<float>(out, in, scale, n);
    case DType::f64:
      return scale_all<double>(out, in, scale, n);
    case DType::f16:
      return scale_half<linerate::HWY_NAMESPACE::Half>(out, in, scale, n);
    case DType::bf16:
      return scale_half<linerate::HWY_NAMESPACE::Brain>(out, in, scale, n);
    default:
      return 0;
  }
}

/// Adds two scaled arrays. Products are rounded before they are added (CMakeLists.txt: no
/// contraction in this file).
template <typename T>
std::size_t add_scaled_all(void* out, const void* a, double scale_a, const void* b, double scale_b,
                           std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto fa = hn::Set(d, static_cast<T>(scale_a)), fb = hn::Set(d, static_cast<T>(scale_b));
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  const auto one = [&](std::size_t i) {
    return hn::Add(hn::Mul(hn::LoadU(d, x + i), fa), hn::Mul(hn::LoadU(d, y + i), fb));
  };
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto v0 = one(i), v1 = one(i + lanes);
    hn::StoreU(v0, d, z + i);
    hn::StoreU(v1, d, z + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(one(i), d, z + i);
  return i;
}

/// For f32 and f64 whole vectors, for other types nothing.
std::size_t add_scaled_vectors(void* out, const void* a, double scale_a, const void* b,
                               double scale_b, std::size_t n, DType dtype) {
  if (dtype == DType::f32) return add_scaled_all<float>(out, a, scale_a, b, scale_b, n);
  if (dtype == DType::f64) return add_scaled_all<double>(out, a, scale_a, b, scale_b, n);
  return 0;
}

}  // namespace linerate::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::comm {

HWY_EXPORT(reduce_vectors);

void reduce_into(void* out, const void* a, const void* b, std::size_t elements, DType dtype,
                 Reduce op) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(reduce_vectors)(out, a, b, elements, dtype, op);
  const std::size_t offset = done * to_index(size_of(dtype));
  reduce_into_scalar(static_cast<std::byte*>(out) + offset,
                     static_cast<const std::byte*>(a) + offset,
                     static_cast<const std::byte*>(b) + offset, elements - done, dtype, op);
}

HWY_EXPORT(scale_vectors);
HWY_EXPORT(add_scaled_vectors);

void scale_into(void* out, const void* in, double scale, std::size_t elements, DType dtype) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(scale_vectors)(out, in, scale, elements, dtype);
  const std::size_t offset = done * to_index(size_of(dtype));
  scale_into_scalar(static_cast<std::byte*>(out) + offset,
                    static_cast<const std::byte*>(in) + offset, scale, elements - done, dtype);
}

void add_scaled_into(void* out, const void* a, double scale_a, const void* b, double scale_b,
                     std::size_t elements, DType dtype) {
  const auto size = to_index(size_of(dtype));
  const std::size_t done =
      HWY_DYNAMIC_DISPATCH(add_scaled_vectors)(out, a, scale_a, b, scale_b, elements, dtype);
  const std::size_t offset = done * size;  // what is left, and 16-bit types
  add_scaled_in_stretches(
      static_cast<std::byte*>(out) + offset, static_cast<const std::byte*>(a) + offset, scale_a,
      static_cast<const std::byte*>(b) + offset, scale_b, elements - done, dtype);
}

}  // namespace linerate::comm
#endif  // HWY_ONCE
