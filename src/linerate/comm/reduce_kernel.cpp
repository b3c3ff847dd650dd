// Sums of arrived chunks with Highway: compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/comm/reduce_kernel.cpp"
#include <hwy/foreach_target.h>  // first: includes this file once per target
// clang-format off
#include <hwy/highway.h>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/half_vectors-inl.hpp"
// clang-format on

#include <algorithm>
#include <array>
#include <cstdint>

#include "linerate/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How vectors of an element type are loaded, stored, and rounded to the array's precision.
template <typename T>
struct Plain {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  static auto load(Tag d, const T* from) { return hn::LoadU(d, from); }
  template <class V>
  static void store(Tag d, V v, T* to) {
    hn::StoreU(v, d, to);
  }
  template <class V>
  static V rounded(Tag, V v) {
    return v;
  }
};

/// f16 and bf16 are computed as f32. `Bits` is Half or Brain.
template <class Bits>
struct Sixteen {
  using Element = std::uint16_t;
  using Tag = hn::ScalableTag<float>;
  static auto load(Tag d, const std::uint16_t* from) { return Bits::widen(d, from); }
  template <class V>
  static void store(Tag d, V v, std::uint16_t* to) {
    Bits::narrow(d, v, to);
  }
  template <class V>
  static V rounded(Tag d, V v) {
    std::array<std::uint16_t, hn::MaxLanes(Tag())> narrow;
    Bits::narrow(d, v, narrow.data());
    return Bits::widen(d, narrow.data());
  }
};

struct Sum {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

/// Compares and selects: of equal zeros `a` is kept, and a NaN of either side is the result.
template <bool is_max>
struct Extreme {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    const V chosen =
        is_max ? hn::IfThenElse(hn::Lt(a, b), b, a) : hn::IfThenElse(hn::Lt(b, a), b, a);
    if constexpr (hwy::IsFloat<hn::TFromD<D>>())
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, chosen));
    return chosen;
  }
};

struct Scale {
  double scale;

  template <class D, class V>
  V operator()(D d, V a, V) const {
    return hn::Mul(a, hn::Set(d, static_cast<hn::TFromD<D>>(scale)));
  }
};

/// Products are rounded before they are added (CMakeLists.txt: no contraction in this file).
template <class Kind>
struct ScaledSum {
  Scale a_scale, b_scale;

  template <class D, class V>
  V operator()(D d, V a, V b) const {
    return hn::Add(Kind::rounded(d, a_scale(d, a, a)), Kind::rounded(d, b_scale(d, b, b)));
  }
};

/// out[i] = op(a[i], b[i]). Whole vectors come first, four at a time while there are four. The
/// elements that are left pass through one vector that is filled up with zeros, so the same
/// instructions round them. With 8 lanes, 45 elements are 4 vectors, 1 vector, and 5 elements.
template <class Kind, class Op>
void for_all(void* out, const void* a, const void* b, std::size_t n, const Op& op) {
  using T = typename Kind::Element;
  const typename Kind::Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const std::size_t j = i + lanes, k = j + lanes, l = k + lanes;
    const auto v0 = op(d, Kind::load(d, x + i), Kind::load(d, y + i));
    const auto v1 = op(d, Kind::load(d, x + j), Kind::load(d, y + j));
    const auto v2 = op(d, Kind::load(d, x + k), Kind::load(d, y + k));
    const auto v3 = op(d, Kind::load(d, x + l), Kind::load(d, y + l));
    Kind::store(d, v0, z + i);
    Kind::store(d, v1, z + j);
    Kind::store(d, v2, z + k);
    Kind::store(d, v3, z + l);
  }
  for (; i + lanes <= n; i += lanes)
    Kind::store(d, op(d, Kind::load(d, x + i), Kind::load(d, y + i)), z + i);
  if (i == n) return;
  std::array<T, hn::MaxLanes(typename Kind::Tag())> left{}, right{};
  std::copy(x + i, x + n, left.begin());
  std::copy(y + i, y + n, right.begin());
  Kind::store(d, op(d, Kind::load(d, left.data()), Kind::load(d, right.data())), left.data());
  std::copy_n(left.begin(), n - i, z + i);
}

/// Calls run(kind) with how elements of this type are computed.
template <class Run>
void with_kind(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::f32:
      return run(Plain<float>());
    case DType::f64:
      return run(Plain<double>());
    case DType::f16:
      return run(Sixteen<linerate::HWY_NAMESPACE::Half>());
    case DType::bf16:
      return run(Sixteen<linerate::HWY_NAMESPACE::Brain>());
    case DType::i32:
      return run(Plain<std::int32_t>());
    case DType::i64:
      return run(Plain<std::int64_t>());
    case DType::u8:
      return run(Plain<std::uint8_t>());
  }
}

void reduce_vectors(void* out, const void* a, const void* b, std::size_t n, DType dtype,
                    Reduce op) {
  with_kind(dtype, [&](auto kind) HWY_ATTR {
    using Kind = decltype(kind);
    if (op == Reduce::sum) return for_all<Kind>(out, a, b, n, Sum());
    if (op == Reduce::max) return for_all<Kind>(out, a, b, n, Extreme<true>());
    for_all<Kind>(out, a, b, n, Extreme<false>());
  });
}

/// Of one array if `b` is null, else the sum of both.
void scale_vectors(void* out, const void* a, double a_scale, const void* b, double b_scale,
                   std::size_t n, DType dtype) {
  const Scale of_a{a_scale}, of_b{b_scale};
  with_kind(dtype, [&](auto kind) HWY_ATTR {
    using Kind = decltype(kind);
    if constexpr (!hwy::IsFloat<hn::TFromD<typename Kind::Tag>>())
      throw InternalError("only floating-point arrays are scaled");
    else if (b == nullptr)
      for_all<Kind>(out, a, a, n, of_a);
    else
      for_all<Kind>(out, a, b, n, ScaledSum<Kind>{of_a, of_b});
  });
}

}  // namespace linerate::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::comm {

HWY_EXPORT(reduce_vectors);
HWY_EXPORT(scale_vectors);

void reduce_into(void* out, const void* a, const void* b, std::size_t elements, DType dtype,
                 Reduce op) {
  HWY_DYNAMIC_DISPATCH(reduce_vectors)(out, a, b, elements, dtype, op);
}

void scale_into(void* out, const void* in, double scale, std::size_t elements, DType dtype) {
  HWY_DYNAMIC_DISPATCH(scale_vectors)(out, in, scale, nullptr, 0, elements, dtype);
}

void add_scaled_into(void* out, const void* a, double scale_a, const void* b, double scale_b,
                     std::size_t elements, DType dtype) {
  HWY_DYNAMIC_DISPATCH(scale_vectors)(out, a, scale_a, b, scale_b, elements, dtype);
}

}  // namespace linerate::comm
#endif  // HWY_ONCE
