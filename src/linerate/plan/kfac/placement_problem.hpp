// The network as K-FAC's searches see it: one transfer after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::plan {

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

// What is to be placed on ranks, and the result.

/// In place of an owner: every rank inverts it for itself, and nothing is sent.
inline constexpr std::int32_t kEverywhere = -1;

/// What is placed: inverses, or whole layers.
struct PlacementProblem {
  std::span<const std::int64_t> dims;   // [n]
  std::span<const double> inverse_s;    // [n] on one rank
  std::span<const double> broadcast_s;  // [n] at full speed; empty if nothing is sent
  int ranks = 1;
  double communication_slowdown = 1;  // of broadcasts while any rank computes
  /// [n] whose direction an inverse is for, and the seconds that every rank takes for it once it
  /// has all of its inverses. Empty: they do not count.
  std::span<const std::int32_t> layer{};
  std::span<const double> layer_s{};
  /// What the channel carries before the first broadcast, in its order: sums of factors, gradients.
  std::span<const Transfer> transfers{};
  /// [n] which of them brings what an inverse is made of; negative, empty: that is there.
  std::span<const std::int32_t> after{};
  /// [layers] which of them brings the last of a layer's gradient, likewise.
  std::span<const std::int32_t> gradient_after{};
  double start_s = 0;  // when ranks are free to invert
  /// What travels together: a message of inverses, and [n] the elements of each. Empty: each
  /// travels by itself.
  MessageSeconds seconds_of{};
  std::span<const std::int64_t> elements{};
  int columns = 1;  // rank r sends over channel r % columns
};

struct Placement {
  std::vector<std::int32_t> owner;  // [n] a rank, or kEverywhere
  /// All inverses in the order in which ranks work, each rank on those that are its own or
  /// everybody's. They follow the arrivals of their factors: those with an owner first, then the
  /// rest, the longest first among both. Every rank waits for an arrival in the same place, before
  /// the first inverse that needs it. By the authors' threshold they stand as they are numbered,
  /// layer by layer.
  std::vector<std::int32_t> order;
  bool behind_arrivals = false;  // ranks wait for every factor before they begin
  /// Those with an owner in the order in which they are sent; message k holds
  /// sent[ends[k - 1]] .. sent[ends[k] - 1], all of one owner.
  std::vector<std::int32_t> sent, ends;
};

// How far ranks and their channel are while factors arrive.

/// The channel up to the first broadcast.
class Arrivals {
 public:
  explicit Arrivals(const PlacementProblem& problem) : problem_(&problem) {}

  /// When a transfer is through, in seconds, if ranks compute until `busy_s`. Those before it are
  /// through as well. Ask in the order of transfers.
  double through_s(std::int32_t transfer, double busy_s) {
    const Channel channel{busy_s, problem_->communication_slowdown};
    for (; next_ <= transfer; ++next_) {
      const Transfer& t = problem_->transfers[to_index(next_)];
      free_s_ = channel.end_of(std::max(free_s_, t.ready_s), t.seconds);
    }
    return free_s_;
  }
  bool brings(std::int32_t transfer) const { return transfer >= next_; }
  double last_s(double busy_s) {
    return through_s(static_cast<std::int32_t>(problem_->transfers.size()) - 1, busy_s);
  }

 private:
  const PlacementProblem* problem_;
  std::int32_t next_ = 0;
  double free_s_ = 0;
};

/// The clocks of ranks at work. A rank's clock is the sum of everybody's work and its own. So work
/// of all ranks moves one number instead of `ranks`. An example: all work 4 ms, rank 1 another 3
/// ms, and all 2 ms. everybody_s_ is 6, own_s_ is {0, 3}, and the clocks are at 6 and 9 ms.
class Clocks {
 public:
  explicit Clocks(const PlacementProblem& problem)
      : everybody_s_(problem.start_s), own_s_(to_index(problem.ranks)) {}

  /// Returns when the owner, or every rank, is done.
  double work(std::int32_t owner, double seconds) {
    if (owner == kEverywhere) return (everybody_s_ += seconds) + most_s_;
    double& own_s = own_s_[to_index(owner)];
    own_s += seconds;
    most_s_ = std::max(most_s_, own_s);
    least_s_ = -1;
    return everybody_s_ + own_s;
  }
  void wait_until(double at_s) {
    const double own_at_s = at_s - everybody_s_;
    for (double& own_s : own_s_) own_s = std::max(own_s, own_at_s);
    most_s_ = std::max(most_s_, own_at_s);
    least_s_ = -1;
  }
  double of(std::int32_t rank) const { return everybody_s_ + own_s_[to_index(rank)]; }
  double latest_s() { return everybody_s_ + most_s_; }
  double earliest_s() {
    if (least_s_ < 0) least_s_ = *std::min_element(own_s_.begin(), own_s_.end());
    return everybody_s_ + least_s_;
  }

 private:
  double everybody_s_, most_s_ = 0, least_s_ = -1;  // negative: to be looked up
  std::vector<double> own_s_;
};

/// Which transfer brings what inverse i is made of; negative: it is there.
inline std::int32_t arrival_of(const PlacementProblem& problem, std::int32_t i) {
  return problem.after.empty() ? -1 : problem.after[to_index(i)];
}

// An order by value.

/// Indices, largest value first, ties by index.
template <typename Value>
std::vector<std::int32_t> descending(std::span<const Value> values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return values[to_index(a)] > values[to_index(b)];
  });
  return order;
}

// When the work placed on ranks is done.

/// `done_s`: when each inverse is made, with ranks working in `order`. `computed_s`: when the last
/// rank is done with inverses and with the layers that need no message. `free_s`: when the channel
/// is free for broadcasts. All in seconds.
struct Timetable {
  std::vector<double> done_s;
  double computed_s = 0, free_s = 0;
};

Timetable timetable_of(const PlacementProblem& problem, const Placement& placement);

/// A lower bound of the end, whatever travels together. Computation and the channel's other
/// transfers come first, and layers that miss a message after both.
double ends_after_s(const PlacementProblem& problem, const Timetable& table,
                    const Placement& placement);

/// When every layer is done on the rank that inverts longest, and every gradient there.
double end_of_layers(const PlacementProblem& problem, const Timetable& table,
                     const Placement& placement);

}  // namespace linerate::plan
