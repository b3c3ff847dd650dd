// The collective operations, and what their sizes mean.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace linerate {

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
