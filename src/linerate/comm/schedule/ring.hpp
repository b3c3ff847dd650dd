// Chunked ring over point-to-point messages (Patarasuk & Yuan 2009): every rank sends (P-1)/P of
// the array for the reduce half and as much for the gather half, to its right neighbour, while it
// receives from its left one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// Block g of the array, P of them. `input` is what this rank adds to block g, `output` where the
/// whole of it goes; the two may be the same memory.
struct RingBlock {
  const std::byte* input = nullptr;  // null: this ring does not reduce
  std::byte* output = nullptr;       // null: this rank does not want the block
  std::size_t bytes = 0;
};

struct RingJob {
  std::vector<RingBlock> blocks;
  bool reduces = false;  // block r ends up reduced in blocks[r].output of rank r
  bool gathers = false;  // then every rank gets every block
  DType dtype = DType::u8;
  Reduce op = Reduce::sum;
};

/// Reduced bits depend on the ring order alone, and each block is reduced in one place: every rank
/// reads the same bits.
void run_ring(Channel& channel, ChunkPool& pool, const RingJob& job);

}  // namespace linerate::comm
