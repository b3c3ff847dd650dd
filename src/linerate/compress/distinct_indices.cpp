#include "linerate/compress/distinct_indices.hpp"

#include <bit>

#include "linerate/core/rng.hpp"

namespace linerate::compress {

DistinctIndices::DistinctIndices(std::uint64_t key, std::uint64_t n) : n_(n) {
  const int bits = std::bit_width(n - 1);
  low_bits_ = (bits + 1) / 2;
  low_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << low_bits_) - 1);
  high_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << (bits - low_bits_)) - 1);
  for (std::uint64_t round = 0; round < 2 * kTurns; ++round)
    keys_[round] = static_cast<std::uint32_t>(random_bits(key, round) >> 32);
}

// The finaliser of MurmurHash3 (Appleby): every bit of x reaches every bit of the answer.
std::uint32_t DistinctIndices::mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

/// One walk of the network on [0, 2^bits). A turn changes the high half by a function of the low
/// half, then the low half by a function of the high half. Each of the two steps can be undone by
/// repeating it, so the whole is a bijection, whatever mixed() is.
std::uint64_t DistinctIndices::permuted(std::uint64_t i) const {
  auto low = static_cast<std::uint32_t>(i) & low_mask_;
  auto high = static_cast<std::uint32_t>(i >> low_bits_) & high_mask_;
  for (int turn = 0; turn < kTurns; ++turn) {
    high ^= mixed(low ^ keys_[2 * turn]) & high_mask_;
    low ^= mixed(high ^ keys_[2 * turn + 1]) & low_mask_;
  }
  return static_cast<std::uint64_t>(high) << low_bits_ | low;
}

}  // namespace linerate::compress
