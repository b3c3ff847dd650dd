// Chooses the schedule of a job of blocks.
#pragma once

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/block_job.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// Runs the job by direct reads if the channel has them, else round the ring. Each block is reduced
/// in one place and in one order, so every rank reads the same bits.
void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
