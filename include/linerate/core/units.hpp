// Quantities with their unit in the type. GB = 1e9 bytes, GiB = 2^30 bytes, Gbit = 1e9 bits.
#pragma once

#include <compare>
#include <cstdint>

namespace linerate {

/// A number with a unit. Sums and ratios of one unit are allowed, mixing units is not.
template <typename Tag, typename Rep>
struct Quantity {
  Rep value{};

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return {value + o.value}; }
  constexpr Quantity operator-(Quantity o) const { return {value - o.value}; }
  constexpr Quantity& operator+=(Quantity o) { return value += o.value, *this; }
  constexpr Quantity& operator-=(Quantity o) { return value -= o.value, *this; }
  constexpr Quantity operator*(Rep k) const { return {value * k}; }
  constexpr Quantity operator/(Rep k) const { return {value / k}; }
  constexpr double operator/(Quantity o) const {
    return static_cast<double>(value) / static_cast<double>(o.value);
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Elements = Quantity<struct ElementsTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

constexpr Seconds operator/(Bytes size, BytesPerSecond rate) {
  return {static_cast<double>(size.value) / rate.value};
}

[[nodiscard]] constexpr Bytes KiB(std::int64_t n) { return {n << 10}; }
[[nodiscard]] constexpr Bytes MiB(std::int64_t n) { return {n << 20}; }
/// Network rates are decimal and per direction: 1 Gbit/s = 1.25e8 bytes/s.
inline constexpr double kBitsPerByte = 8, kBitsPerGbit = 1e9, kBitsPerMbit = 1e6;

}  // namespace linerate
