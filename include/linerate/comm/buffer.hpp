// Arrays of numbers as collectives see them, and how ranks' arrays are combined.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <type_traits>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

/// How elements of ranks become one; max and min hand a NaN on.
enum class Reduce : std::uint8_t { sum, max, min };

/// Memory of one collective; the caller keeps it alive and untouched until the Work is done.
/// buffer() makes it from typed memory and finds the element type. For raw memory the caller gives
/// the type. Thread safety: a value.
struct Buffer {
  /// `elements` of raw memory, each of `type`.
  constexpr Buffer(void* memory, Elements elements, DType type)
      : data(memory), count(elements), dtype(type) {}

  void* data;      // the first element
  Elements count;  // how many
  DType dtype;     // of each
};
/// The same, only read.
/// Thread safety: a value.
struct ConstBuffer {
  /// `elements` of raw memory, each of `type`.
  constexpr ConstBuffer(const void* memory, Elements elements, DType type)
      : data(memory), count(elements), dtype(type) {}
  /// Whoever may write may read.
  constexpr ConstBuffer(const Buffer& buffer)  // NOLINT(google-explicit-constructor)
      : data(buffer.data), count(buffer.count), dtype(buffer.dtype) {}

  const void* data;  // the first element
  Elements count;    // how many
  DType dtype;       // of each
};

/// A part of a rank's contribution to a sum, read in place: `scale` times each of `values`, which
/// have the array's element type.
struct Piece {
  ConstBuffer values;  // as the rank has them
  double scale = 1;    // of each value
};

/// The C++ types of elements. C++20 has none for f16 and bf16, so the caller gives their DType.
template <typename T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
                  (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8)) ||
                  std::same_as<T, unsigned char> || std::same_as<T, std::byte> ||
                  std::same_as<T, char>;  // text, as u8

/// A type of another size or kind than these does not compile.
template <Element T>
[[nodiscard]] constexpr DType dtype_of() {
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, double>) return DType::f64;
  if constexpr (sizeof(T) == 1) return DType::u8;
  return sizeof(T) == 4 ? DType::i32 : DType::i64;
}

/// Numbers that lie one after the other and outlive the expression: a span, a vector, an array.
template <typename Range>
concept ElementRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> && Element<std::ranges::range_value_t<Range>>;

/// buffer(std::span<T>), of a vector or an array too: a Buffer, or a ConstBuffer where elements are
/// const.
template <ElementRange Range>
[[nodiscard]] constexpr auto buffer(Range&& values) {
  using Value = std::remove_reference_t<std::ranges::range_reference_t<Range>>;
  using Result = std::conditional_t<std::is_const_v<Value>, ConstBuffer, Buffer>;
  return Result(std::ranges::data(values), {static_cast<std::int64_t>(std::ranges::size(values))},
                dtype_of<std::remove_const_t<Value>>());
}

/// One number.
template <typename T>
requires Element<std::remove_const_t<T>>
[[nodiscard]] constexpr auto buffer(T& value) {
  using Result = std::conditional_t<std::is_const_v<T>, ConstBuffer, Buffer>;
  return Result(std::addressof(value), {1}, dtype_of<std::remove_const_t<T>>());
}

}  // namespace linerate::comm
