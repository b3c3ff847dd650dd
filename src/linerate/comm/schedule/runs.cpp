#include "linerate/comm/schedule/runs.hpp"

#include <algorithm>
#include <cstring>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

Run RunCursor::take(std::size_t most) {
  while (done_ == runs_.front().bytes) runs_ = runs_.subspan(1), done_ = 0;
  const Run& run = runs_.front();
  const Run part{run.data + done_, std::min(most, run.bytes - done_), run.scale};
  done_ += part.bytes;
  return part;
}

void RunCursor::skip(std::size_t bytes) {
  while (bytes > 0) bytes -= take(bytes).bytes;
}

std::vector<Run> runs_of(std::span<const Piece> pieces, DType dtype, std::size_t begin,
                         std::size_t bytes) {
  std::vector<Run> runs;
  std::size_t at = 0;  // where the piece begins
  for (const Piece& piece : pieces) {
    const auto size = to_index(piece.values.count.value * size_of(dtype));
    const std::size_t from = std::max(at, begin), to = std::min(at + size, begin + bytes);
    if (from < to)
      runs.push_back(
          {static_cast<const std::byte*>(piece.values.data) + (from - at), to - from, piece.scale});
    at += size;
  }
  return runs;
}

void write_scaled(std::byte* to, RunCursor from, std::size_t bytes, DType dtype) {
  const auto element = to_index(size_of(dtype));
  for (std::size_t done = 0; done < bytes;) {
    const Run run = from.take(bytes - done);
    if (run.scale != 1)
      scale_into(to + done, run.data, run.scale, run.bytes / element, dtype);
    else if (to + done != run.data)
      std::memcpy(to + done, run.data, run.bytes);
    done += run.bytes;
  }
}

void write_pieces(const Buffer& array, std::span<const Piece> pieces) {
  const auto bytes = to_index(array.count.value * size_of(array.dtype));
  const std::vector<Run> runs = runs_of(pieces, array.dtype, 0, bytes);
  write_scaled(static_cast<std::byte*>(array.data), RunCursor(runs), bytes, array.dtype);
}

}  // namespace linerate::comm
