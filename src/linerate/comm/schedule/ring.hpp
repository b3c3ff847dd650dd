// Chunked ring over point-to-point messages (Patarasuk & Yuan 2009). Every rank sends to its right
// neighbour while it receives from its left one. It sends (P-1)/P of the array for the reduce half,
// and as much for the gather half.
#pragma once

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/block_job.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

void run_ring(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
