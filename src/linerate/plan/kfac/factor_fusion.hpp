// Which Kronecker factors travel together (reference: Shi, Zhang & Li 2021, SPD-KFAC; the exact
// program is ours).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace linerate::plan {

// The network as K-FAC's searches see it: one transfer after the other.

/// What goes over the channel: when it is ready, and its seconds at full speed.
struct Transfer {
  double ready_s = 0, seconds = 0;
};

/// Seconds of a message of so many elements of so many tensors, at full speed.
using MessageSeconds = std::function<double(std::int64_t, std::int64_t)>;

/// A transfer progresses `slowdown` times slower before `slow_until_s`: while ranks compute, if the
/// Cluster says that communication and computation contend. An example: slowdown 2 until 7 ms. A
/// transfer of 4 ms that starts at 3 ms has done 2 ms by then, and ends at 9 ms.
struct Channel {
  double slow_until_s = 0, slowdown = 1;

  /// When a transfer of `work_s` seconds at full speed ends. Never decreases in either argument.
  double end_of(double start_s, double work_s) const {
    if (slowdown <= 1 || start_s >= slow_until_s) return start_s + work_s;
    const double done_s = (slow_until_s - start_s) / slowdown;
    return work_s <= done_s ? start_s + work_s * slowdown : slow_until_s + (work_s - done_s);
  }
};

/// Factors 1 .. L in the order in which they are sent; groups are runs of them. A group is ready
/// with the last of its members, and leaves after what is ready by then.
struct FactorFusionProblem {
  std::vector<double> ready_s{};         // [L]; they may decrease
  std::vector<std::int64_t> elements{};  // [L] packed
  std::vector<std::int32_t> kind{};      // [L] a group holds one kind; empty: they are all alike
  MessageSeconds seconds_of{};           // of factors
  std::vector<Transfer> others{};        // by ready time: gradients
  Channel channel{};
};

/// Ends of the groups: group k holds factors ends[k-1] .. ends[k] - 1.
using FactorGroups = std::vector<std::int32_t>;

/// When the last group is through.
double finish_s(const FactorFusionProblem& problem, const FactorGroups& groups);

/// The groups that finish first: f[j] = min over i < j of end(max(f[i], others, ready of i+1..j),
/// T(N_j
/// - N_i)). It is exact, as finishing a prefix earlier never hurts. Ties go to fewer groups, then
///   to the smaller i. O(L^2) time, O(L) memory.
FactorGroups fuse_optimally(const FactorFusionProblem& problem);

/// The authors' rule, factor by factor. l joins l + 1 if l + 1 is ready before the channel would
/// have started l and paid `start_up_s` for it. Each kind goes by itself, as if the channel were
/// its own. Sizes are those of packed triangles throughout, which the released program mixes up.
FactorGroups fuse_greedily(const FactorFusionProblem& problem, double start_up_s);

/// Every factor by itself; every kind in one message.
FactorGroups fuse_nothing(const FactorFusionProblem& problem);
FactorGroups fuse_each_kind(const FactorFusionProblem& problem);

// Which of the inverses or directions that ranks send travel together.

/// Inverses or directions, each with a root, over one channel.
struct BroadcastProblem {
  std::span<const double> done_s;          // [n] when the root has it
  std::span<const std::int32_t> root;      // [n]
  std::span<const std::int64_t> elements;  // [n]
  MessageSeconds seconds_of;               // of them
  double free_s = 0;                       // the channel
  Channel channel{};
};

/// Message k is order[ends[k-1]] .. order[ends[k] - 1], all of one root, sent when the last of them
/// is done; messages leave one after the other.
struct Broadcasts {
  std::vector<std::int32_t> order, ends;
};

/// The members of each message.
std::vector<std::span<const std::int32_t>> messages_of(std::span<const std::int32_t> order,
                                                       std::span<const std::int32_t> ends);

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
