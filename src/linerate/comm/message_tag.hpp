// What a message says of the collective that it belongs to, in as many bits as the transport has
// for a tag. A receive meets only messages of its own tag, so a message of another collective lands
// in its memory only if hashes of 27 bits (Open MPI's tags have 31) are the same by chance,
// whatever the transport does with sizes: over shared memory Open MPI 4.1.4 copies as much as was
// sent, not as much as the receive has room for (single-copy GET of vader, above 4 KiB; its TCP
// does so above the eager limit).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

/// Payload: [history | call, 3 bits | 0]. Comparison of checked mode: [turn | 1]: those of
/// different collectives meet, which names both sides.
class MessageTag {
 public:
  /// `bits` of a tag, at least 15 (what MPI promises): 4 of them are spoken for.
  constexpr explicit MessageTag(int bits)
      : mask_((std::uint64_t{1} << (bits - 4)) - 1), bits_(bits) {}

  constexpr std::uint64_t payload(std::uint64_t history, CollectiveCall call) const {
    return ((history ^ (history >> 29)) & mask_) << 4 | static_cast<std::uint64_t>(call) << 1;
  }
  constexpr std::uint64_t comparison(std::uint64_t turn) const {
    return (turn << 1 & ((std::uint64_t{1} << bits_) - 1)) | 1;
  }

  /// What `peer` sent to `rank` under this tag, which no receive of that rank awaits.
  static std::string stray(int peer, std::uint64_t tag, int rank) {
    const bool compares = (tag & 1) != 0;
    return "rank " + std::to_string(peer) + " sent rank " + std::to_string(rank) + " " +
           (compares ? "the comparison of checked mode"
                     : "part of another collective, " + article(to_index(tag >> 1 & 7)));
  }

 private:
  static std::string article(std::size_t call) {
    constexpr std::size_t kCalls = 7;
    if (call >= kCalls) return "unknown to this version";
    const std::string_view name = name_of(static_cast<CollectiveCall>(call));
    return (name.starts_with('a') ? "an " : "a ") + std::string(name);
  }

  std::uint64_t mask_;
  int bits_;
};

}  // namespace linerate::comm
