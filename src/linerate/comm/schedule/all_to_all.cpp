#include <cstring>
#include <deque>

#include "linerate/comm/schedule/collectives.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
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

}  // namespace linerate::comm
