// How far ranks and their channel are while factors arrive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

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

}  // namespace linerate::plan
