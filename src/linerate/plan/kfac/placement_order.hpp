// In which order ranks work on what has been given owners, and what travels together.
#pragma once

#include <limits>
#include <span>

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// `sent` and `ends` of what has been given owners and an order, by what ends first; returns that
/// end. Infinity, with nothing sent, if it is seen at once to end after `limit_s`.
double send(const PlacementProblem& problem, Placement& placement, double limit_s = kNoLimit);
/// `order`, `sent` and `ends` of what has been given owners; returns when everything is through.
/// `longest_first`: descending(problem.inverse_s). Infinity, with nothing ordered, if every order
/// is seen at once to end after `limit_s`.
double put_in_order(const PlacementProblem& problem, std::span<const std::int32_t> longest_first,
                    Placement& placement, double limit_s = kNoLimit);

}  // namespace linerate::plan
