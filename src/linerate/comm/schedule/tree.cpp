// Broadcast and barrier. A short broadcast takes a tree, in which few messages follow each other. A
// long one takes a chain, in which all links work at once. A message of one chunk is the border
// between them.
#include <cstring>
#include <deque>
#include <span>
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
    channel.wait_for(received);
  }
  std::deque<Transfer> sends;
  for (distance /= 2; distance > 0; distance /= 2) {
    if (me + distance >= ranks) continue;
    channel.send((me + distance + root) % ranks, data, bytes, sends.emplace_back());
  }
  for (const Transfer& sent : sends) channel.wait_for(sent);
}

/// Streams chunks from one rank while it sends chunks to another. A rank that `hands_on` sends what
/// it receives, each chunk as soon as it has arrived.
void stream(Channel& channel, std::size_t chunk, int from, std::span<std::byte> in, int to,
            std::span<const std::byte> out, bool hands_on) {
  std::deque<Transfer> receives, sends;
  std::size_t asked = 0, arrived = 0, sent = 0;
  while (arrived < in.size() || sent < out.size() || !sends.empty()) {
    while (receives.size() < kChunksUnderWay && asked < in.size()) {
      const auto part = in.subspan(asked, std::min(chunk, in.size() - asked));
      channel.receive(from, part.data(), part.size(), receives.emplace_back());
      asked += part.size();
    }
    const std::size_t ready = hands_on ? std::min(arrived, out.size()) : out.size();
    while (sends.size() < kChunksUnderWay && sent < ready) {
      const auto part = out.subspan(sent, std::min(chunk, out.size() - sent));
      channel.send(to, part.data(), part.size(), sends.emplace_back());
      sent += part.size();
    }
    channel.wait_some();
    for (; !receives.empty() && receives.front().done; receives.pop_front())
      arrived += std::min(chunk, in.size() - arrived);
    while (!sends.empty() && sends.front().done) sends.pop_front();
  }
}

/// Chain from the root. Every rank hands a chunk on as soon as it has arrived, so all links are
/// busy at once. Say there are three ranks, and a chunk takes 1 ms. Then rank 1 has chunk k at k +
/// 1 ms, and rank 2 at k + 2 ms. So n chunks take n + P - 2 ms, where a tree would take n log2 P.
void chain(Channel& channel, std::size_t chunk, std::span<std::byte> data, int root) {
  const int ranks = channel.size(), rank = channel.rank();
  const int left = (rank - 1 + ranks) % ranks, right = (rank + 1) % ranks;
  const bool is_root = rank == root, is_last = right == root;
  stream(channel, chunk, left, data.first(is_root ? 0 : data.size()), right,
         data.first(is_last ? 0 : data.size()), !is_root);
}

}  // namespace

void broadcast(Channel& channel, ChunkPool& pool, Buffer buffer, int root) {
  const auto bytes = to_index(buffer.count.value * size_of(buffer.dtype));
  if (channel.size() == 1 || bytes == 0) return;
  auto* data = static_cast<std::byte*>(buffer.data);
  if (bytes <= pool.chunk_bytes()) return tree(channel, data, bytes, root);
  chain(channel, pool.chunk_bytes(), {data, bytes}, root);
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
    channel.wait_for(received);
    channel.wait_for(sent);
  }
}

// Reduce-scatter and all-gather: the two halves of the ring.

namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

/// An array that is cut into blocks of these sizes, in bytes. This rank's parts of their sums stand
/// from `input` on, and the results from `output` on; null: there are none.
BlockJob job_of(const std::vector<std::size_t>& sizes, const void* input, void* output, DType dtype,
                Reduce op = Reduce::sum) {
  const auto* from = static_cast<const std::byte*>(input);
  auto* to = static_cast<std::byte*>(output);
  BlockJob job{.blocks = {},
               .reduces = input != nullptr,
               .gathers = output != nullptr,
               .dtype = dtype,
               .op = op};
  for (const std::size_t bytes : sizes) {
    job.blocks.push_back({from, to, bytes});
    if (from) from += bytes;
    if (to) to += bytes;
  }
  return job;
}

}  // namespace

/// With pieces `output` is the array, and this rank's block of it is the result.
void reduce_scatter(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output, Reduce op,
                    const Pieces& pieces) {
  const bool reads = pieces && channel.size() > 1 && channel.reads_peers();
  if (pieces) {
    if (!reads) write_pieces(output, *pieces);
    const std::int64_t block = output.count.value / channel.size();
    output = {static_cast<std::byte*>(output.data) + channel.rank() * block * size_of(output.dtype),
              {block},
              output.dtype};
  }
  const auto bytes = to_index(output.count.value * size_of(output.dtype));
  if (channel.size() == 1) return copy(output.data, input.data, bytes);
  if (bytes == 0) return;
  BlockJob job =
      job_of(std::vector(to_index(channel.size()), bytes), input.data, nullptr, output.dtype, op);
  job.blocks[to_index(channel.rank())].output = static_cast<std::byte*>(output.data);
  if (reads) add_runs(job, *pieces);
  run_blocks(channel, pool, job);
}

void all_gather(Channel& channel, ChunkPool& pool, ConstBuffer input, Buffer output,
                std::span<const std::int64_t> counts) {
  std::vector<std::size_t> sizes;
  for (int r = 0; r < channel.size(); ++r) {
    const std::int64_t count = counts.empty() ? input.count.value : counts[to_index(r)];
    sizes.push_back(to_index(count * size_of(output.dtype)));
  }
  const BlockJob job = job_of(sizes, nullptr, output.data, output.dtype);
  const ArrayBlock& own = job.blocks[to_index(channel.rank())];
  copy(own.output, input.data, own.bytes);
  run_blocks(channel, pool, job);
}

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
    stream(channel, pool.chunk_bytes(), source, {to + at(source), bytes}, target,
           {from + at(target), bytes}, false);
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
    channel.wait_for(sent);
    channel.receive(rank - 1, buffer.data, bytes, received);
    channel.wait_for(received);
  } else {
    if (rank < 2 * rest) {
      channel.receive(rank + 1, other, bytes, received);
      channel.wait_for(received);
      reduce_into(buffer.data, buffer.data, other, elements, buffer.dtype, op);
    }
    const int me = rank < 2 * rest ? rank / 2 : rank - rest;
    for (int distance = 1; distance < power; distance *= 2) {
      const int partner = me ^ distance;
      const int peer = partner < rest ? 2 * partner : partner + rest;
      channel.receive(peer, other, bytes, received);
      channel.send(peer, buffer.data, bytes, sent);
      channel.wait_for(received);
      channel.wait_for(sent);
      const void* low = me < partner ? buffer.data : other;
      const void* high = me < partner ? other : buffer.data;
      reduce_into(buffer.data, low, high, elements, buffer.dtype, op);
    }
    if (rank < 2 * rest) {
      channel.send(rank + 1, buffer.data, bytes, sent);
      channel.wait_for(sent);
    }
  }
  pool.give_back(other);
}

bool is_small(const Channel& channel, const ChunkPool& pool, const Buffer& buffer) {
  const auto bytes = to_index(buffer.count.value * size_of(buffer.dtype));
  return bytes <= std::min(channel.latency_bytes(), pool.chunk_bytes());
}

}  // namespace

void all_reduce(Channel& channel, ChunkPool& pool, Buffer output, Reduce op, const Pieces& pieces) {
  const bool small = is_small(channel, pool, output);
  const bool reads = pieces && channel.size() > 1 && channel.reads_peers() && !small;
  if (pieces && !reads) write_pieces(output, *pieces);
  if (channel.size() == 1 || output.count.value == 0) return;
  if (small) return recursive_doubling(channel, pool, output, op);
  // A block for each rank. Their counts differ by one at most.
  const auto ranks = to_index(channel.size()), elements = to_index(output.count.value);
  std::vector<std::size_t> sizes(ranks, elements / ranks);
  for (std::size_t g = 0; g < elements % ranks; ++g) ++sizes[g];
  for (std::size_t& size : sizes) size *= to_index(size_of(output.dtype));
  BlockJob job = job_of(sizes, output.data, output.data, output.dtype, op);
  if (reads) add_runs(job, *pieces);
  run_blocks(channel, pool, job);
}

}  // namespace linerate::comm
