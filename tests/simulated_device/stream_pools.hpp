// Who gets which memory of a device: what is free in each stream, as CUDA's allocator keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace linerate::simulated {

/// Memory belongs for ever to the stream that first asked for it. A freed piece goes at once to the
/// next request in that stream, whoever still uses it elsewhere. Of those that fit, the piece that
/// was freed last is taken; a small one may have up to four times the bytes.
class StreamPools {
 public:
  /// Bytes come in whole units.
  static std::size_t rounded(std::size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

  /// Where it begins; none: nothing free fits.
  std::optional<std::size_t> take(int stream, std::size_t bytes);
  void give_back(int stream, std::size_t begin, std::size_t bytes);

 private:
  static constexpr std::size_t kUnit = 512, kSmall = std::size_t{64} << 10;
  struct Piece {
    std::size_t begin;
    std::int64_t freed;  // counts what was freed
  };
  std::map<int, std::map<std::size_t, std::vector<Piece>>> free_;  // by stream and bytes
  std::int64_t freed_ = 0;
};

}  // namespace linerate::simulated
