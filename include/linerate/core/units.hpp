// Quantities with their unit in the type. GB = 1e9 bytes, GiB = 2^30 bytes, Gbit = 1e9 bits.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace linerate {

/// A number with a unit. Sums and ratios of one unit are allowed, mixing units is not.
template <typename Tag, typename Rep>
struct Quantity {
  Rep value{};  // in the unit

  constexpr auto operator<=>(const Quantity&) const = default;
  /// Sum.
  constexpr Quantity operator+(Quantity o) const { return {value + o.value}; }
  /// Difference.
  constexpr Quantity operator-(Quantity o) const { return {value - o.value}; }
  /// Adds to this one.
  constexpr Quantity& operator+=(Quantity o) { return value += o.value, *this; }
  /// Takes from this one.
  constexpr Quantity& operator-=(Quantity o) { return value -= o.value, *this; }
  /// `k` times as much.
  constexpr Quantity operator*(Rep k) const { return {value * k}; }
  /// The k-th part.
  constexpr Quantity operator/(Rep k) const { return {value / k}; }
  /// How many times the other one it is.
  constexpr double operator/(Quantity o) const {
    return static_cast<double>(value) / static_cast<double>(o.value);
  }
};

/// Sizes of memory and messages.
using Bytes = Quantity<struct BytesTag, std::int64_t>;
/// Numbers of array elements.
using Elements = Quantity<struct ElementsTag, std::int64_t>;
/// Lengths of time.
using Seconds = Quantity<struct SecondsTag, double>;
/// Rates of links, codecs and memory.
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

/// The time that so many bytes take at a rate.
constexpr Seconds operator/(Bytes size, BytesPerSecond rate) {
  return {static_cast<double>(size.value) / rate.value};
}

/// n times 1024 bytes.
[[nodiscard]] constexpr Bytes KiB(std::int64_t n) { return {n << 10}; }
/// n times 1024 KiB.
[[nodiscard]] constexpr Bytes MiB(std::int64_t n) { return {n << 20}; }
/// Network rates are decimal and per direction: 1 Gbit/s = 1.25e8 bytes/s.
inline constexpr double kBitsPerByte = 8, kBitsPerGbit = 1e9, kBitsPerMbit = 1e6;

// Times that a caller sets.

/// A time that a caller sets: a timeout, a deadline, an interval or a budget. It is a duration of
/// std::chrono, so that `60s`, `500ms` and std::chrono::minutes(5) can be written. Times that are
/// measured, predicted or stand in a document are numbers of seconds. Their names end in `_s`, or
/// the type is `Seconds` (docs/units.md).
using Duration = std::chrono::duration<double>;

/// A time that was typed ("5min", core/text.hpp) as one that is set.
[[nodiscard]] constexpr Duration to_duration(Seconds time) { return Duration(time.value); }

}  // namespace linerate
