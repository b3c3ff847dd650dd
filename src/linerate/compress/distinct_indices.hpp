// Distinct random indices without memory: a keyed bijection of [0, n).
#pragma once

#include <cstdint>

namespace linerate::compress {

/// A permutation of [0, n), 1 <= n <= 2^32, that depends on (key, n) alone: a Feistel network on as
/// many bits as n needs, walked along its cycle until it comes back below n (Black & Rogaway 2002,
/// "Ciphers with arbitrary finite domains"). at(0) ... at(k - 1) are k distinct indices.
class DistinctIndices {
 public:
  DistinctIndices(std::uint64_t key, std::uint64_t n);
  /// i < n. Fewer than two walks of the network on average.
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
