// Which of the inverses or directions that ranks send travel together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "linerate/plan/kfac/channel.hpp"

namespace linerate::plan {

/// Inverses or directions, each with a root, over one channel.
struct BroadcastProblem {
  std::span<const double> done_s;          // [n] when the root has it
  std::span<const std::int32_t> root;      // [n]
  std::span<const std::int64_t> elements;  // [n]
  /// A message of so many elements of so many of them, at full speed.
  std::function<double(std::int64_t, std::int64_t)> seconds_of;
  double free_s = 0;  // the channel
  Channel channel{};
};

/// Message k is order[ends[k-1]] .. order[ends[k] - 1], all of one root, sent when the last of them
/// is done; messages leave one after the other.
struct Broadcasts {
  std::vector<std::int32_t> order, ends;
};

/// Each by itself, in the order in which they are done.
Broadcasts send_each(const BroadcastProblem& problem);
/// Whenever the channel is free, the root that waits longest sends all that it has done. Nothing is
/// held back. If a message costs no more than its halves, the last message ends no later than with
/// send_each.
Broadcasts send_what_is_done(const BroadcastProblem& problem);
/// One message a root.
Broadcasts send_each_root(const BroadcastProblem& problem);

/// Whether an end is sooner by more than rounding. Sums of the same durations in another order
/// differ in their last digits.
inline bool is_sooner(double end_s, double than_s) { return end_s < than_s * (1 - 1e-12); }

/// When each message is through.
std::vector<double> ends_s(const BroadcastProblem& problem, const Broadcasts& broadcasts);
/// Of the three rules the one that ends first, and the first of them on ties.
Broadcasts fuse_broadcasts(const BroadcastProblem& problem);

}  // namespace linerate::plan
