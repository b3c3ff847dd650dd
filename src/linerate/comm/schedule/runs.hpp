// A rank's part of a sum, as it lies in memory: pieces, cut at the borders of blocks. For example
// pieces of 6 and 4 elements make an array of 10 elements, and two ranks have blocks of 5. Block 0
// is 5 elements of the first piece. Block 1 is the last one of the first piece and all 4 of the
// second.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "linerate/comm/buffer.hpp"

namespace linerate::comm {

/// `bytes` of one piece. Plain bytes: other ranks read lists of them.
struct Run {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  double scale = 1;
};

/// Walks along runs.
class RunCursor {
 public:
  RunCursor() = default;
  explicit RunCursor(std::span<const Run> runs) : runs_(runs) {}
  /// Takes the next bytes that lie together, at most `most` of them, and moves on past them. There
  /// must be more.
  Run take(std::size_t most);
  /// The same, without moving on.
  Run peek(std::size_t most) const { return RunCursor(*this).take(most); }
  void skip(std::size_t bytes);

 private:
  std::span<const Run> runs_;
  std::size_t done_ = 0;  // of the first one
};

/// Bytes [begin, begin + bytes) of the pieces, one after the other.
std::vector<Run> runs_of(std::span<const Piece> pieces, DType dtype, std::size_t begin,
                         std::size_t bytes);

/// array = the pieces, each times its scale.
void write_pieces(const Buffer& array, std::span<const Piece> pieces);

/// to[bytes] = the cursor's next bytes, each run times its scale. A run may lie at its own place in
/// `to`.
void write_scaled(std::byte* to, RunCursor from, std::size_t bytes, DType dtype);

}  // namespace linerate::comm
