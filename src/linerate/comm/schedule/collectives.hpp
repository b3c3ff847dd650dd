// A job of the schedules for large arrays: reduce, gather or both, on an array that is cut into one
// block a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "linerate/comm/channel.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/comm/schedule/runs.hpp"

namespace linerate::comm {

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

/// Byte-level forms of the operations of Communicator: same shapes, already validated. They return
/// when the result is in place and no message of this rank's is in flight any more.
void all_reduce(Channel& channel, ChunkPool& pool, Buffer buffer, Reduce op);
void all_reduce(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces, Buffer array);
void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output, Reduce op);
void reduce_scatter(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces, Buffer array);
void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts);
void all_to_all(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output);
void broadcast(Channel& channel, ChunkPool& pool, Buffer buffer, int root);
void barrier(Channel& channel);

// Chooses the schedule of a job of blocks.

/// Runs the job by direct reads if the channel has them, else round the ring. Each block is reduced
/// in one place and in one order, so every rank reads the same bits.
void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job);

// Ranks that can read each other's memory: nothing is sent but addresses and flags.

/// Rank r reads block r from every other rank and adds it up, chunk by chunk through the cache.
/// Then it reads the other blocks at the ranks that have reduced them. As many bytes move as in a
/// ring. But each rank works for milliseconds at a time and waits for the others at most three
/// times. So progress threads rarely wake up during computation. Expects channel.reads_peers().
void run_direct(Channel& channel, ChunkPool& pool, const BlockJob& job);

// Chunked ring over point-to-point messages (Patarasuk & Yuan 2009). Every rank sends to its right
// neighbour while it receives from its left one. It sends (P-1)/P of the array for the reduce half,
// and as much for the gather half.

void run_ring(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
