#include "simulated_device/stream_pools.hpp"

namespace linerate::simulated {

std::optional<std::size_t> StreamPools::take(int stream, std::size_t bytes) {
  const std::size_t asked = rounded(bytes), most = asked <= kSmall ? 4 * asked : asked;
  auto& by_bytes = free_[stream];
  auto last = by_bytes.end();
  for (auto it = by_bytes.lower_bound(asked); it != by_bytes.end() && it->first <= most; ++it)
    if (!it->second.empty() &&
        (last == by_bytes.end() || it->second.back().freed > last->second.back().freed))
      last = it;
  if (last == by_bytes.end()) return std::nullopt;
  const Piece piece = last->second.back();
  last->second.pop_back();
  if (last->first > asked)
    by_bytes[last->first - asked].push_back({piece.begin + asked, piece.freed});
  return piece.begin;
}

void StreamPools::give_back(int stream, std::size_t begin, std::size_t bytes) {
  free_[stream][rounded(bytes)].push_back({begin, ++freed_});
}

}  // namespace linerate::simulated
