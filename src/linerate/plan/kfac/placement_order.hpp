// In which order ranks work on what has been given owners, and what travels together.
#pragma once

#include <limits>
#include <vector>

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

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
