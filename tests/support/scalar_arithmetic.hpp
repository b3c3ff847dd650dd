// comm/reduce_kernel.hpp in other words, for tests to compare with: plain loops, one element at a
// time, with conversions spelled out bit by bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "linerate/comm/buffer.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {

/// A NaN of either side is the result, also of a maximum. Sums of integers wrap around.
template <typename T>
T combine(T a, T b, Reduce op) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Reduce::sum) return a + b;
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  } else if (op == Reduce::sum) {
    using U = std::make_unsigned_t<T>;  // wraps instead of overflowing
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
  return op == Reduce::max ? (a < b ? b : a) : (b < a ? b : a);
}

template <typename T>
void combine_all(void* out, const void* a, const void* b, std::size_t n, Reduce op) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(out);
  for (std::size_t i = 0; i < n; ++i) z[i] = combine(x[i], y[i], op);
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Narrow)(float)>
void combine_half(void* out, const void* a, const void* b, std::size_t n, Reduce op) {
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  auto* z = static_cast<std::uint16_t*>(out);
  for (std::size_t i = 0; i < n; ++i) z[i] = Narrow(combine(Widen(x[i]), Widen(y[i]), op));
}

inline float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// bf16 is the upper half of an f32. Adding 0x7fff plus the lowest bit that stays rounds to
/// nearest, and ties to even. For example the lower half 0x8000 is a tie. The sum carries if the
/// bit that stays is 1, and does not if it is 0.
inline std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // stays quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Rounds to nearest, ties to even, in integers. 13 bits of the mantissa go. Example: 1 + 2^-11
/// lies in the middle between 1 and 1 + 2^-10, and the even one of them is 1. Adding 0xfff does not
/// carry then. At 1 + 3 * 2^-11 the bit that stays is 1, is added as well, and carries to 1 + 2^-9.
inline std::uint16_t f16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves a spacing of 2^-24, f16's, so the float unit rounds to nearest
    // even for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

inline void reduce_into_scalar(void* out, const void* a, const void* b, std::size_t n, DType dtype,
                               Reduce op) {
  switch (dtype) {
    case DType::f32:
      return combine_all<float>(out, a, b, n, op);
    case DType::f64:
      return combine_all<double>(out, a, b, n, op);
    case DType::f16:
      return combine_half<float_of_f16, f16_of_float>(out, a, b, n, op);
    case DType::bf16:
      return combine_half<float_of_bf16, bf16_of_float>(out, a, b, n, op);
    case DType::i32:
      return combine_all<std::int32_t>(out, a, b, n, op);
    case DType::i64:
      return combine_all<std::int64_t>(out, a, b, n, op);
    case DType::u8:
      return combine_all<std::uint8_t>(out, a, b, n, op);
  }
}

inline void scale_into_scalar(void* out, const void* in, double scale, std::size_t n, DType dtype) {
  const auto single = static_cast<float>(scale);
  const auto halves = [&](auto widen, auto narrow) {
    const auto* x = static_cast<const std::uint16_t*>(in);
    auto* z = static_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < n; ++i) z[i] = narrow(widen(x[i]) * single);
  };
  const auto all = [&](auto factor) {
    const auto* x = static_cast<const decltype(factor)*>(in);
    auto* z = static_cast<decltype(factor)*>(out);
    for (std::size_t i = 0; i < n; ++i) z[i] = x[i] * factor;
  };
  switch (dtype) {
    case DType::f32:
      return all(single);
    case DType::f64:
      return all(scale);
    case DType::f16:
      return halves(float_of_f16, f16_of_float);
    case DType::bf16:
      return halves(float_of_bf16, bf16_of_float);
    default:
      throw InternalError("only floating-point arrays are scaled");
  }
}

}  // namespace linerate::comm
