// An all-reduce of up to latency_bytes() exchanges whole buffers, because its time is that of the
// number of messages. A larger one is cut into a block a rank, reduced and gathered
// (run_blocks.hpp), because its time is that of its bytes.
#include <vector>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/comm/schedule/run_blocks.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

int power_of_two_below(int ranks) {
  int power = 1;
  while (power * 2 <= ranks) power *= 2;
  return power;
}

/// Recursive doubling (Thakur, Rabenseifner, Gropp 2005, section 4.3): log2 P exchanges of the
/// whole buffer. In the exchange of distance d, ranks whose number differs in the bit d swap their
/// partial sums and add them. The partial result of the lower rank is always the left operand, so
/// both sides of an exchange compute the same bits.
///
/// If P is no power of two, let P = p2 + rest. The first 2 * rest ranks pair up. The odd rank of
/// each pair hands its buffer over and waits for the result.
///
/// An example with three ranks, p2 = 2 and rest = 1. Rank 1 sends x1 to rank 0, which has x0 + x1.
/// Then rank 0 acts as number 0 and rank 2 as number 1: they exchange, and both have (x0 + x1) +
/// x2. Rank 0 sends the result to rank 1. With four ranks there are two exchanges: 0 with 1 and 2
/// with 3, then 0 with 2 and 1 with 3.
void recursive_doubling(Channel& channel, ChunkPool& pool, Buffer buffer, Reduce op) {
  const int rank = channel.rank();
  const int power = power_of_two_below(channel.size());
  const int rest = channel.size() - power;
  const auto elements = to_index(buffer.count.value);
  const std::size_t bytes = elements * to_index(size_of(buffer.dtype));
  std::byte* other = pool.take();
  Transfer sent, received;
  const bool folded = rank < 2 * rest && rank % 2 == 1;
  if (folded) {
    channel.send(rank - 1, buffer.data, bytes, sent);
    wait(channel, sent);
    channel.receive(rank - 1, buffer.data, bytes, received);
    wait(channel, received);
  } else {
    if (rank < 2 * rest) {
      channel.receive(rank + 1, other, bytes, received);
      wait(channel, received);
      reduce_into(buffer.data, buffer.data, other, elements, buffer.dtype, op);
    }
    const int me = rank < 2 * rest ? rank / 2 : rank - rest;
    for (int distance = 1; distance < power; distance *= 2) {
      const int partner = me ^ distance;
      const int peer = partner < rest ? 2 * partner : partner + rest;
      channel.receive(peer, other, bytes, received);
      channel.send(peer, buffer.data, bytes, sent);
      wait(channel, received);
      wait(channel, sent);
      const void* low = me < partner ? buffer.data : other;
      const void* high = me < partner ? other : buffer.data;
      reduce_into(buffer.data, low, high, elements, buffer.dtype, op);
    }
    if (rank < 2 * rest) {
      channel.send(rank + 1, buffer.data, bytes, sent);
      wait(channel, sent);
    }
  }
  pool.give_back(other);
}

bool is_small(const Channel& channel, const ChunkPool& pool, const Buffer& buffer) {
  const auto bytes = to_index(buffer.count.value * size_of(buffer.dtype));
  return bytes <= std::min(channel.latency_bytes(), pool.chunk_bytes());
}

/// Cuts a buffer into a block for each rank. Their counts differ by one at most.
BlockJob job_of(const Channel& channel, const Buffer& buffer, Reduce op) {
  const auto ranks = to_index(channel.size());
  const auto elements = to_index(buffer.count.value);
  const auto element = to_index(size_of(buffer.dtype));
  BlockJob job{.blocks = {}, .reduces = true, .gathers = true, .dtype = buffer.dtype, .op = op};
  auto* base = static_cast<std::byte*>(buffer.data);
  for (std::size_t g = 0; g < ranks; ++g) {
    const std::size_t begin = elements / ranks * g + std::min(g, elements % ranks);
    const std::size_t count = elements / ranks + (g < elements % ranks ? 1 : 0);
    job.blocks.push_back({base + begin * element, base + begin * element, count * element});
  }
  return job;
}

}  // namespace

void all_reduce(Channel& channel, ChunkPool& pool, Buffer buffer, Reduce op) {
  if (channel.size() == 1 || buffer.count.value == 0) return;
  if (is_small(channel, pool, buffer)) return recursive_doubling(channel, pool, buffer, op);
  run_blocks(channel, pool, job_of(channel, buffer, op));
}

void all_reduce(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces, Buffer array) {
  if (channel.size() == 1 || !channel.reads_peers() || is_small(channel, pool, array)) {
    write_pieces(array, pieces);
    return all_reduce(channel, pool, array, Reduce::sum);
  }
  BlockJob job = job_of(channel, array, Reduce::sum);
  add_runs(job, pieces);
  run_blocks(channel, pool, job);
}

}  // namespace linerate::comm
