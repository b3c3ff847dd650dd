#include "linerate/sim/broadcast_reach.hpp"

#include <algorithm>
#include <bit>

namespace linerate::sim {

double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks) {
  if (ranks <= 1) return 0;
  const auto last = static_cast<unsigned>(ranks - 1);
  const int most = std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1);
  const auto relative = static_cast<unsigned>((position - root + ranks) % ranks);
  return static_cast<double>(std::popcount(relative)) / most;
}

}  // namespace linerate::sim
