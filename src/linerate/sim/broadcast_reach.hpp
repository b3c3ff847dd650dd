// When a broadcast reaches each rank. It is passed on from rank to rank and waits for nobody.
#pragma once

#include <cstdint>

namespace linerate::sim {

/// The share of a broadcast's latency after which it reaches the rank at this position of a part:
/// 0 for the root, 1 for the ranks that it takes most messages to, as a binomial tree has them.
double share_of_way(std::int32_t position, std::int32_t root, std::int32_t ranks);

/// How long a broadcast occupies a rank that has come to it, and when it is everywhere. A rank is
/// through once its own link has carried the message and the message has reached it:
///   end = max(start + own_s, start of the root + own_s + share_of_way * (last_s - own_s)),
/// so the root waits for nobody, and the next broadcast of another root leaves while this one still
/// travels. Of ranks that come together the last ends after last_s.
struct BroadcastTime {
  double own_s = 0, last_s = 0;

  double reaches_s(double share) const { return own_s + share * (last_s - own_s); }
};

}  // namespace linerate::sim
