#include "linerate/sim/broadcast_reach.hpp"

#include <algorithm>
#include <bit>

namespace linerate::sim {

// In a binomial tree a rank gets the message from the rank whose number, counted from the root, has
// one bit less. So the bits that are set in the number are the messages on the way. Among 8 ranks
// with root 0, rank 4 (100) is one message away. Ranks 3 (011) and 5 (101) are two messages away,
// and rank 7 (111) three. `most` is the largest count below `ranks`. Either the last rank has it,
// or the number of all ones that is one bit shorter. With 5 ranks that is rank 3 (011) with two
// messages, although the last rank, 4 (100), takes one.
double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks) {
  if (ranks <= 1) return 0;
  const auto last = static_cast<unsigned>(ranks - 1);
  const int most = std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1);
  const auto relative = static_cast<unsigned>((position - root + ranks) % ranks);
  return static_cast<double>(std::popcount(relative)) / most;
}

}  // namespace linerate::sim
