// Which rank inverts what (reference: Shi, Zhang & Li 2021, load-balancing placement; the search is
// ours).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

/// The authors' threshold.
inline constexpr std::int64_t kAuthorsTheta = 1400;

/// How many k place_by_search looks at first.
inline constexpr std::size_t kCutGrid = 16;

/// The k inverses that take longest have owners, by longest processing time first. The others are
/// inverted everywhere, under the broadcasts. k is the number that makes overlapped_s least, the
/// smallest on ties. All k are tried up to 2 kCutGrid - 1 inverses; of more, those on the grid and
/// near the best of them. By overlapped_s the result is never later than in turn or by the authors'
/// threshold.
Placement place_by_search(const PlacementProblem& problem);
/// The authors' rule. An inverse of fewer than `theta` dimensions is made everywhere. The others,
/// the largest first, go to the rank with the least sum of dimensions. Ranks go through the layers
/// as the authors' do, so that broadcasts of the last layers leave last.
Placement place_by_threshold(const PlacementProblem& problem, std::int64_t theta);
/// All have owners: the longest first, to the rank with the least to do, the lowest on ties.
Placement place_longest_first(const PlacementProblem& problem);
/// All have owners: the largest first, in turn.
Placement place_in_turn(const PlacementProblem& problem);
Placement place_everywhere(const PlacementProblem& problem);
/// With these owners.
Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner);

/// When everything is inverted and sent, every direction made and every gradient there, in seconds.
/// Ranks work in `order`, then on layers that miss no message, as their gradients arrive, then on
/// the others. Messages leave in their order, one after the other, each when its inverses are
/// there, after all transfers.
double overlapped_s(const PlacementProblem& problem, const Placement& placement);

/// Longest processing time first over whole layers, within `columns` groups of ranks. Rank r is in
/// column r % columns, and a layer goes to the least loaded column and to its least loaded rank.
/// With one column it goes over all ranks. Graham 1969: at most 4/3 - 1/(3 ranks) of the best
/// there.
std::vector<std::int32_t> place_layers(std::span<const double> seconds, int ranks, int columns);

// In which order ranks work on what has been given owners, and what travels together.

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// `sent` and `ends` of what has been given owners and an order, by what ends first; returns that
/// end. Infinity, with nothing sent, if it is seen at once to end after `limit_s`.
double send(const PlacementProblem& problem, Placement& placement, double limit_s = kNoLimit);

/// What inverses wait for, whoever owns them: which arrive when, and in how many stages.
struct ArrivalStages {
  ArrivalStages(const PlacementProblem& problem, const std::vector<std::int32_t>& longest_first);

  PlacementProblem problem;
  std::vector<std::int32_t> coming;  // inverses as they arrive, at once the longest first
  /// Transfers that bring some, ascending; what is there when ranks are free is one stage.
  std::vector<std::int32_t> stages;
};

/// Orders what has been given owners. A search asks for hundreds of placements of one problem, so
/// what does not depend on owners is found once. Does not outlive what the problem refers to.
class PlacementOrder {
 public:
  explicit PlacementOrder(const PlacementProblem& problem);

  /// descending(problem.inverse_s).
  const std::vector<std::int32_t>& longest_first() const { return longest_first_; }
  /// `order`, `sent` and `ends`; returns when everything is through. Infinity, with nothing
  /// ordered, if every order is seen at once to end after `limit_s`.
  double find(Placement& placement, double limit_s = kNoLimit) const;

 private:
  std::vector<std::int32_t> longest_first_;
  std::vector<std::size_t> place_;  // of each inverse, in longest_first_
  ArrivalStages as_they_arrive_, at_once_;
};

}  // namespace linerate::plan
