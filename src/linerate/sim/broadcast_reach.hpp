// When a broadcast reaches each rank. It is passed on from rank to rank and waits for nobody.
#pragma once

#include <cstdint>

namespace linerate::sim {

/// The share of a broadcast's latency after which it reaches the rank at this position of a part.
/// It is 0 for the root. It is 1 for the ranks that most messages of a binomial tree lead to.
double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks);

/// How long a broadcast occupies a rank that has come to it, and when it is everywhere. A rank is
/// through once its own link has carried the message and the message has reached it:
///   end = max(start + own_s, start of the root + own_s + share_of_way * (last_s - own_s)),
/// So the root waits for nobody, and the next broadcast of another root leaves while this one still
/// travels. Of ranks that come together the last one ends after last_s. An example: own_s is 2 ms,
/// last_s is 5 ms, and the root starts at 0 ms. A rank half the way from the root is reached at 3.5
/// ms, the farthest rank at 5 ms. If the farthest rank comes at 4 ms, it ends at 6 ms.
struct BroadcastTime {
  double own_s = 0, last_s = 0;

  double reaches_s(double share) const { return own_s + share * (last_s - own_s); }
};

}  // namespace linerate::sim
