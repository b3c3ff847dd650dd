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

// The collective operations, and what their sizes mean.

/// Size convention, everywhere: S is the whole buffer of an all-reduce or broadcast, and the
/// *total* array (all ranks' pieces together) of a reduce-scatter, all-gather or all-to-all, as in
/// nccl-tests.
enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  reduce,
  barrier
};
inline constexpr int kMostRanks = 10'000'000;  // beyond: a typo

inline constexpr std::array<std::string_view, 7> kCollectiveNames = {
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "barrier"};

[[nodiscard]] constexpr std::string_view name_of(Collective c) {
  return kCollectiveNames[static_cast<std::size_t>(c)];
}
/// Accepts any spelling that agrees after lower-casing and dropping '-', '_' and blanks. Throws
/// UsageError.
[[nodiscard]] Collective parse_collective(std::string_view name);
/// busbw = algbw * factor (nccl-tests, doc/PERFORMANCE.md): all-reduce 2(n-1)/n; the gathering ones
/// (n-1)/n; else 1.
[[nodiscard]] double bus_factor(Collective c, int ranks);

}  // namespace linerate
