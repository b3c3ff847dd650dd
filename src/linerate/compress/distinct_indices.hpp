// Distinct random indices without memory: a keyed bijection of [0, n).
#pragma once

#include <cstdint>

namespace linerate::compress {

/// A permutation of [0, n), 1 <= n <= 2^32, that depends on (key, n) alone. So at(0) ... at(k - 1)
/// are k distinct indices, which every rank computes without a table of those that are taken.
///
/// A Feistel network permutes [0, 2^bits), with as many bits as n needs. An answer of n or more is
/// put through the network again until it is below n. This is "cycle walking" (Black & Rogaway
/// 2002, "Ciphers with arbitrary finite domains"). Example: n = 5 takes 3 bits. at(2) may walk from
/// 2 to 6, which is no index, and from 6 to 1. Then 1 is the answer. No other start ends at 1,
/// because the walk backwards from 1 meets 6 and then 2.
class DistinctIndices {
 public:
  DistinctIndices(std::uint64_t key, std::uint64_t n);
  /// i < n. Takes fewer than two walks of the network on average, because 2^bits is less than 2 n.
  std::uint64_t at(std::uint64_t i) const {
    do {
      i = permuted(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr int kTurns = 4;  // two rounds each

  static std::uint32_t mixed(std::uint32_t x);
  std::uint64_t permuted(std::uint64_t i) const;

  std::uint64_t n_;
  int low_bits_;
  std::uint32_t low_mask_, high_mask_;
  std::uint32_t keys_[2 * kTurns];
};

}  // namespace linerate::compress
