// What the schedules for large arrays do: reduce, gather or both, on an array cut into one block a
// rank.
#pragma once

#include <cstddef>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/comm/schedule/runs.hpp"

namespace linerate::comm {

/// Block g of the array, P of them. `input` is what this rank adds to block g, `output` where the
/// whole of it goes; the two may be the same memory.
struct ArrayBlock {
  const std::byte* input = nullptr;  // null: this job does not reduce
  std::byte* output = nullptr;       // null: this rank does not want the block
  std::size_t bytes = 0;
  std::vector<Run> runs{};  // what this rank adds unless it lies at `input`: `bytes` of it
};

struct BlockJob {
  std::vector<ArrayBlock> blocks;
  bool reduces = false;  // block r ends up reduced in blocks[r].output of rank r
  bool gathers = false;  // then every rank gets every block
  DType dtype = DType::u8;
  Reduce op = Reduce::sum;
};

/// Makes these pieces, one after the other, what this rank adds to the blocks.
inline void add_runs(BlockJob& job, std::span<const Piece> pieces) {
  std::size_t begin = 0;
  for (ArrayBlock& block : job.blocks) {
    block.runs = runs_of(pieces, job.dtype, begin, block.bytes);
    begin += block.bytes;
  }
}

}  // namespace linerate::comm
