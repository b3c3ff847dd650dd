// Element types that travel between ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace linerate {

/// IEEE floating point, bfloat16, signed whole numbers, bytes.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8 };
inline constexpr std::array<std::string_view, 7> kDTypeNames = {"f32", "f64", "f16", "bf16",
                                                                "i32", "i64", "u8"};

/// Bytes of an element.
[[nodiscard]] constexpr std::int64_t size_of(DType type) {
  constexpr std::array<std::int64_t, 7> sizes = {4, 8, 2, 2, 4, 8, 1};
  return sizes[static_cast<std::size_t>(type)];
}
/// Whether it is one of f32, f64, f16 and bf16.
[[nodiscard]] constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}
[[nodiscard]] constexpr std::string_view name_of(DType type) {
  return kDTypeNames[static_cast<std::size_t>(type)];
}
/// Throws UsageError listing the known names.
[[nodiscard]] DType parse_dtype(std::string_view name);

}  // namespace linerate
