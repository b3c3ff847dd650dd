// A rank's part of a sum, as it lies in memory: pieces, cut at the borders of blocks. For example
// pieces of 6 and 4 elements make an array of 10 elements, and two ranks have blocks of 5. Block 0
// is 5 elements of the first piece. Block 1 is the last one of the first piece and all 4 of the
// second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "linerate/comm/buffer.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/comm/transport.hpp"

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

// A job of the schedules for large arrays: reduce, gather or both, on an array that is cut into one
// block a rank.

/// Block g of the array, which has P of them. `input` is this rank's part of block g's sum, and
/// `output` is the place of the whole sum. The two may be the same memory.
struct ArrayBlock {
  const std::byte* input = nullptr;  // null: this job does not reduce
  std::byte* output = nullptr;       // null: this rank does not want the block
  std::size_t bytes = 0;
  std::vector<Run> runs{};  // this rank's part of the sum unless it lies at `input`: `bytes` of it
};

struct BlockJob {
  std::vector<ArrayBlock> blocks;
  bool reduces = false;  // block r ends up reduced in blocks[r].output of rank r
  bool gathers = false;  // then every rank gets every block
  DType dtype = DType::u8;
  Reduce op = Reduce::sum;
};

/// Makes these pieces, one after the other, this rank's part of the blocks' sums.
inline void add_runs(BlockJob& job, std::span<const Piece> pieces) {
  std::size_t begin = 0;
  for (ArrayBlock& block : job.blocks) {
    block.runs = runs_of(pieces, job.dtype, begin, block.bytes);
    begin += block.bytes;
  }
}

// Scratch memory for chunks in flight. The chunk that was returned last is handed out first,
// because it is still in the cache.

class ChunkPool {
 public:
  explicit ChunkPool(std::size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  std::byte* take() {
    if (free_.empty()) {
      owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes_));
      free_.push_back(owned_.back().get());
    }
    std::byte* chunk = free_.back();
    free_.pop_back();
    return chunk;
  }
  void give_back(std::byte* chunk) { free_.push_back(chunk); }
  std::size_t chunk_bytes() const { return chunk_bytes_; }

 private:
  std::size_t chunk_bytes_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<std::byte*> free_;
};

// Chooses the algorithm of a collective by its size. Collectives bound by latency exchange whole
// buffers; large ones stream chunks.

/// What a rank adds to a sum if that does not lie in the array.
using Pieces = std::optional<std::vector<Piece>>;

/// Byte-level forms of the operations of Communicator: same shapes, already validated. They return
/// when the result is in place and no message of this rank's is in flight any more.
/// Sums of `pieces`, if there are any, are formed in `output`; their reduce-scatter is in place.
void all_reduce(Channel& channel, ChunkPool& pool, Buffer output, Reduce op,
                const Pieces& pieces = {});
void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output, Reduce op,
                    const Pieces& pieces = {});
/// `counts` of the ranks' inputs; empty: all are as large as this rank's.
void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts);
void all_to_all(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output);
void broadcast(Channel& channel, ChunkPool& pool, Buffer buffer, int root);
void barrier(Channel& channel);

// Chooses the schedule of a job of blocks.

/// Runs the job by direct reads if the channel has them, else round the ring. Each block is reduced
/// in one place and in one order, so every rank reads the same bits.
void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
