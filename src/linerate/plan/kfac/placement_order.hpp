// In which order ranks work on what has been given owners, and what travels together.
#pragma once

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

/// `sent` and `ends` of what has been given owners and an order, by what ends first; returns that
/// end.
double send(const PlacementProblem& problem, Placement& placement);
/// `order`, `sent` and `ends` of what has been given owners; returns when everything is through.
double put_in_order(const PlacementProblem& problem, Placement& placement);

}  // namespace linerate::plan
