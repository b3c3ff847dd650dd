#include "linerate/comm/schedule/run_blocks.hpp"

#include "linerate/comm/schedule/direct.hpp"
#include "linerate/comm/schedule/ring.hpp"

namespace linerate::comm {

void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job) {
  if (channel.size() == 1) return;
  if (channel.reads_peers()) return run_direct(channel, pool, job);
  run_ring(channel, pool, job);
}

}  // namespace linerate::comm
