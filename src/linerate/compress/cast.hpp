// in[n] of one floating-point type -> out[n] of another: what a narrower wire type costs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linerate/core/dtype.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {

/// f32 to f16 and bf16, and back.
bool can_cast(DType from, DType to);

/// Rounds to nearest even; what is too large becomes infinite, a NaN stays one. `in` and `out` do
/// not overlap. Throws UsageError unless can_cast().
void cast(const void* in, DType from, void* out, DType to, std::size_t elements);

// The random numbers of stochastic rounding: 32 bits for each element, which depend on (key,
// element) alone. So threads, chunks, vector widths and devices that share the work draw the same
// numbers in any order.

/// So many elements share a key of 64 bits. Within them a counter of 32 bits is enough, and half as
/// dear to mix as one of 64. Example: element 10,000 is number 1,808 of block 2.
inline constexpr std::uint64_t kRoundingBlock = 4096;

/// One step of the stream within a block: MurmurHash3's finaliser (Appleby 2011) over a Weyl
/// sequence. The upper half of the key enters between its rounds. Without it the streams of two
/// keys would be shifted copies of each other.
constexpr std::uint32_t mix_rounding(std::uint32_t counter, std::uint64_t block_key) {
  std::uint32_t x = counter * 0x9e3779b9u + static_cast<std::uint32_t>(block_key);
  x = (x ^ (x >> 16)) * 0x85ebca6bu + static_cast<std::uint32_t>(block_key >> 32);
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
/// The bits of element `i`.
constexpr std::uint32_t rounding_bits(std::uint64_t key, std::uint64_t i) {
  return mix_rounding(static_cast<std::uint32_t>(i % kRoundingBlock),
                      random_bits(key, i / kRoundingBlock));
}

}  // namespace linerate::compress
