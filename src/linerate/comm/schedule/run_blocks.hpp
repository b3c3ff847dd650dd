// Which schedule a job of blocks takes.
#pragma once

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/block_job.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// By direct reads if the channel has them, else round the ring. Each block is reduced in one place
/// and in one order: every rank reads the same bits.
void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
