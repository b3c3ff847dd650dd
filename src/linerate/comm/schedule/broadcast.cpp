// Broadcast and barrier. A short broadcast takes a tree, in which few messages follow each other. A
// long one takes a chain, in which all links work at once. A message of one chunk is the border
// between them.
#include <deque>

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

}  // namespace linerate::comm
