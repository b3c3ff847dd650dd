// A job of the schedules for large arrays: reduce, gather or both, on an array that is cut into one
// block a rank.
#pragma once

#include <cstddef>
#include <vector>

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

}  // namespace linerate::comm
