// Broadcast and barrier. A short broadcast takes a tree, in which few messages follow each other. A
// long one takes a chain, in which all links work at once. A message of one chunk is the border
// between them.
#include <cstring>
#include <deque>
#include <vector>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

constexpr std::size_t kChunksUnderWay = 4;  // chunks in flight in each direction

/// Binomial tree: ceil(log2 P) messages deep. Let `me` count from the root. A rank receives from
/// the rank whose number lacks the lowest set bit of `me`. Then it sends to the ranks at half that
/// distance, a quarter and so on. With eight ranks 0 sends to 4, 2 and 1; 4 sends to 6 and 5; 2
/// sends to 3; 6 sends to 7.
void tree(Channel& channel, std::byte* data, std::size_t bytes, int root) {
  const int ranks = channel.size();
  const int me = (channel.rank() - root + ranks) % ranks;
  int distance = 1;
  while (distance < ranks && (me & distance) == 0) distance *= 2;
  if (me != 0) {
    Transfer received;
    channel.receive((me - distance + root) % ranks, data, bytes, received);
    wait(channel, received);
  }
  std::deque<Transfer> sends;
  for (distance /= 2; distance > 0; distance /= 2) {
    if (me + distance >= ranks) continue;
    channel.send((me + distance + root) % ranks, data, bytes, sends.emplace_back());
  }
  for (const Transfer& sent : sends) wait(channel, sent);
}

/// Chain from the root. Every rank hands a chunk on as soon as it has arrived, so all links are
/// busy at once. Say there are three ranks, and a chunk takes 1 ms. Then rank 1 has chunk k at k +
/// 1 ms, and rank 2 at k + 2 ms. So n chunks take n + P - 2 ms, where a tree would take n log2 P.
void chain(Channel& channel, std::size_t chunk, std::byte* data, std::size_t bytes, int root) {
  const int ranks = channel.size();
  const int me = (channel.rank() - root + ranks) % ranks;
  const int left = (channel.rank() - 1 + ranks) % ranks;
  const int right = (channel.rank() + 1) % ranks;
  std::deque<Transfer> receives, sends;
  std::size_t asked = me == 0 ? bytes : 0;
  std::size_t arrived = me == 0 ? bytes : 0;
  std::size_t sent = me == ranks - 1 ? bytes : 0;
  while (arrived < bytes || sent < bytes || !sends.empty()) {
    for (; receives.size() < kChunksUnderWay && asked < bytes;
         asked += std::min(chunk, bytes - asked)) {
      channel.receive(left, data + asked, std::min(chunk, bytes - asked), receives.emplace_back());
    }
    for (; sends.size() < kChunksUnderWay && sent < arrived;
         sent += std::min(chunk, bytes - sent)) {
      channel.send(right, data + sent, std::min(chunk, bytes - sent), sends.emplace_back());
    }
    channel.wait_some();
    while (!receives.empty() && receives.front().done) {
      arrived += std::min(chunk, bytes - arrived);
      receives.pop_front();
    }
    while (!sends.empty() && sends.front().done) sends.pop_front();
  }
}

}  // namespace

void broadcast(Channel& channel, ChunkPool& pool, Buffer buffer, int root) {
  const auto bytes = to_index(buffer.count.value * size_of(buffer.dtype));
  if (channel.size() == 1 || bytes == 0) return;
  auto* data = static_cast<std::byte*>(buffer.data);
  if (bytes <= pool.chunk_bytes()) return tree(channel, data, bytes, root);
  chain(channel, pool.chunk_bytes(), data, bytes, root);
}

/// Dissemination (Hensgen, Finkel, Manber 1988): ceil(log2 P) rounds of one-byte messages. In the
/// round of distance d a rank tells rank + d that it has come, and hears from rank - d. A message
/// also stands for all that its sender has heard of. With three ranks, rank 0 hears of rank 2 in
/// the first round. In the second it hears of rank 1, which has heard of rank 0 itself.
void barrier(Channel& channel) {
  const int ranks = channel.size();
  const std::byte token{};
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::byte heard{};
    Transfer sent, received;
    channel.receive((channel.rank() - distance + ranks) % ranks, &heard, 1, received);
    channel.send((channel.rank() + distance) % ranks, &token, 1, sent);
    wait(channel, received);
    wait(channel, sent);
  }
}

// Reduce-scatter and all-gather: the two halves of the ring.

namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

BlockJob job_of(const Channel& channel, const std::byte* input, Buffer output, Reduce op) {
  const auto bytes = to_index(output.count.value * size_of(output.dtype));
  BlockJob job{.blocks = {}, .reduces = true, .gathers = false, .dtype = output.dtype, .op = op};
  for (int g = 0; g < channel.size(); ++g)
    job.blocks.push_back({input + to_index(g) * bytes, nullptr, bytes});
  job.blocks[to_index(channel.rank())].output = static_cast<std::byte*>(output.data);
  return job;
}

}  // namespace

void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                    Reduce op) {
  const auto bytes = to_index(output.count.value * size_of(output.dtype));
  if (channel.size() == 1) return copy(output.data, input.data, bytes);
  if (bytes == 0) return;
  run_blocks(channel, pool, job_of(channel, static_cast<const std::byte*>(input.data), output, op));
}

void reduce_scatter(Channel& channel, ChunkPool& pool, std::span<const Piece> pieces,
                    Buffer array) {
  const std::int64_t block = array.count.value / channel.size();
  auto* base = static_cast<std::byte*>(array.data);
  const Buffer own{base + channel.rank() * block * size_of(array.dtype), {block}, array.dtype};
  if (channel.size() == 1 || !channel.reads_peers()) {
    write_pieces(array, pieces);
    return reduce_scatter(channel, pool, array, own, Reduce::sum);
  }
  BlockJob job = job_of(channel, base, own, Reduce::sum);
  add_runs(job, pieces);
  run_blocks(channel, pool, job);
}

void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts) {
  const auto element = to_index(size_of(output.dtype));
  BlockJob job{
      .blocks = {}, .reduces = false, .gathers = true, .dtype = output.dtype, .op = Reduce::sum};
  auto* base = static_cast<std::byte*>(output.data);
  for (const std::int64_t count : counts) {
    const std::size_t bytes = to_index(count) * element;
    job.blocks.push_back({nullptr, base, bytes});
    base += bytes;
  }
  const ArrayBlock& own = job.blocks[to_index(channel.rank())];
  copy(own.output, input.data, own.bytes);
  run_blocks(channel, pool, job);
}

namespace {

constexpr std::size_t kUnderWay = 4;  // chunks in flight in each direction

/// Streams chunks to one rank while it takes chunks from another.
void exchange(Channel& channel, std::size_t chunk, int to, const std::byte* out, int from,
              std::byte* in, std::size_t bytes) {
  std::deque<Transfer> sends, receives;
  std::size_t sent = 0, asked = 0;
  const auto retire = [](std::deque<Transfer>& queue) {
    while (!queue.empty() && queue.front().done) queue.pop_front();
  };
  while (sent < bytes || asked < bytes || !sends.empty() || !receives.empty()) {
    for (; receives.size() < kUnderWay && asked < bytes; asked += std::min(chunk, bytes - asked)) {
      channel.receive(from, in + asked, std::min(chunk, bytes - asked), receives.emplace_back());
    }
    for (; sends.size() < kUnderWay && sent < bytes; sent += std::min(chunk, bytes - sent)) {
      channel.send(to, out + sent, std::min(chunk, bytes - sent), sends.emplace_back());
    }
    channel.wait_some();
    retire(sends);
    retire(receives);
  }
}

}  // namespace

/// Pairwise exchange. In step s every rank sends to rank + s and receives from rank - s. So at any
/// time each rank receives from one rank alone. With three ranks, step 1 is 0 -> 1 -> 2 -> 0, and
/// step 2 is 0 -> 2 -> 1 -> 0. P - 1 steps of n / P bytes each take as long as one message of n (P
/// - 1) / P.
void all_to_all(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output) {
  const int ranks = channel.size();
  const int rank = channel.rank();
  const auto bytes = to_index(input.count.value / ranks * size_of(input.dtype));
  if (bytes == 0) return;
  const auto* from = static_cast<const std::byte*>(input.data);
  auto* to = static_cast<std::byte*>(output.data);
  const auto at = [&](int block) { return to_index(block) * bytes; };
  std::memcpy(to + at(rank), from + at(rank), bytes);
  for (int step = 1; step < ranks; ++step) {
    const int target = (rank + step) % ranks;
    const int source = (rank - step + ranks) % ranks;
    exchange(channel, pool.chunk_bytes(), target, from + at(target), source, to + at(source),
             bytes);
  }
}

// An all-reduce of up to latency_bytes() exchanges whole buffers, because its time is that of the
// number of messages. A larger one is cut into a block a rank, reduced and gathered
// (collectives.hpp), because its time is that of its bytes.

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
