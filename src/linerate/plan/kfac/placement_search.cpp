// Branch and bound over owners.
#include <algorithm>
#include <numeric>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/placement.hpp"
#include "linerate/plan/kfac/placement_order.hpp"

namespace linerate::plan {
namespace {

constexpr std::int64_t kMostAssignments = 12000;

/// Whether at most kMostAssignments assignments exist. Ranks are alike, so an inverse goes to one
/// of the ranks that own something, to the lowest rank that owns nothing yet, or everywhere.
/// `ways[k]` counts the assignments in which k ranks own something. Two inverses on two ranks have
/// 5: both everywhere, one of them owned (2), both owned by one rank, and each by another.
bool is_small(const PlacementProblem& problem) {
  std::vector<std::int64_t> ways = {1};  // by how many ranks own something
  for (std::size_t i = 0; i < problem.inverse_s.size(); ++i) {
    std::vector<std::int64_t> more(std::min(ways.size() + 1, to_index(problem.ranks) + 1));
    for (std::size_t owners = 0; owners < ways.size(); ++owners) {
      more[owners] += ways[owners] * static_cast<std::int64_t>(owners + 1);
      if (owners + 1 < more.size()) more[owners + 1] += ways[owners];
    }
    ways = std::move(more);
    if (std::accumulate(ways.begin(), ways.end(), std::int64_t{0}) > kMostAssignments) return false;
  }
  return true;
}

// Depth first over the inverses, the longest first, from a placement that is known. A branch ends
// if it cannot beat the best so far, even if the rest of the work were shared evenly.
class ExactPlacement {
 public:
  ExactPlacement(const PlacementProblem& problem, Placement known)
      : problem_(problem),
        ordering_(problem),
        order_(ordering_.longest_first()),
        owner_(problem.inverse_s.size(), kEverywhere),
        own_s_(to_index(problem.ranks)),
        left_s_(std::accumulate(problem.inverse_s.begin(), problem.inverse_s.end(), 0.0)),
        layers_s_(std::accumulate(problem.layer_s.begin(), problem.layer_s.end(), 0.0)),
        best_(std::move(known)),
        least_s_(overlapped_s(problem, best_)) {}

  Placement best() && {
    place(0, 0);
    return std::move(best_);
  }

 private:
  void place(std::size_t at, std::int32_t owners) {
    if (at_least_s() >= least_s_) return;
    if (at == order_.size()) return finish();
    const auto i = to_index(order_[at]);
    const double seconds = problem_.inverse_s[i];
    left_s_ -= seconds;
    for (std::int32_t rank = 0; rank < std::min(owners + 1, problem_.ranks); ++rank) {
      owner_[i] = rank, own_s_[to_index(rank)] += seconds;
      place(at + 1, std::max(owners, rank + 1));
      own_s_[to_index(rank)] -= seconds;
    }
    owner_[i] = kEverywhere, everywhere_s_ += seconds;
    place(at + 1, owners);
    everywhere_s_ -= seconds, left_s_ += seconds;
  }

  /// A lower bound of the end: work that is not placed yet is shared evenly, and nothing waits.
  double at_least_s() const {
    const double shared_s =
        (std::accumulate(own_s_.begin(), own_s_.end(), left_s_)) / problem_.ranks;
    const double most_s = std::max(*std::max_element(own_s_.begin(), own_s_.end()), shared_s);
    return problem_.start_s + everywhere_s_ + most_s + layers_s_;
  }

  void finish() {
    Placement placement{owner_, {}, false, {}, {}};
    const double end_s = ordering_.find(placement, least_s_);
    if (end_s < least_s_) least_s_ = end_s, best_ = std::move(placement);
  }

  const PlacementProblem& problem_;
  PlacementOrder ordering_;
  const std::vector<std::int32_t>& order_;
  std::vector<std::int32_t> owner_;
  std::vector<double> own_s_;  // by rank
  double everywhere_s_ = 0, left_s_, layers_s_;
  Placement best_;
  double least_s_;
};

}  // namespace

Placement place_by_search(const PlacementProblem& problem) {
  Placement by_cut = place_by_cut(problem);
  if (!is_small(problem)) return by_cut;
  return ExactPlacement(problem, std::move(by_cut)).best();
}

}  // namespace linerate::plan
