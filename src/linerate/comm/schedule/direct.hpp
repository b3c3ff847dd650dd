// Ranks that can read each other's memory: nothing is sent but addresses and flags.
#pragma once

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/block_job.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// Rank r reads block r from every other rank and adds it up, chunk by chunk through the cache.
/// Then it reads the other blocks at the ranks that have reduced them. As many bytes move as in a
/// ring. But each rank works for milliseconds at a time and waits for the others at most three
/// times. So progress threads rarely wake up during computation. Expects channel.reads_peers().
void run_direct(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
