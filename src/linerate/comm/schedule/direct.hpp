// Ranks that can read each other's memory: nothing is sent but addresses and flags.
#pragma once

#include "linerate/comm/channel.hpp"
#include "linerate/comm/schedule/block_job.hpp"
#include "linerate/comm/schedule/chunk_pool.hpp"

namespace linerate::comm {

/// Rank r reads block r from every other rank and adds it up, chunk by chunk through the cache;
/// then it reads the other blocks where they were reduced. As many bytes move as in a ring, but
/// each side works for milliseconds at a time and waits for the other at most three times, so
/// progress threads rarely wake up during computation. Expects channel.reads_peers().
void run_direct(Channel& channel, ChunkPool& pool, const BlockJob& job);

}  // namespace linerate::comm
