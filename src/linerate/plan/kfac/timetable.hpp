// When the work placed on ranks is done.
#pragma once

#include <vector>

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

/// When each is inverted, ranks working in `order`, when the last of them is and what needs no
/// message is preconditioned, and when the channel is free for broadcasts.
struct Timetable {
  std::vector<double> done_s;
  double computed_s = 0, free_s = 0;
};

Timetable timetable_of(const PlacementProblem& problem, const Placement& placement);

/// It is not sooner, whatever travels together: what is computed and the channel's other transfers
/// come first, and layers that miss a message after both.
double ends_after_s(const PlacementProblem& problem, const Timetable& table,
                    const Placement& placement);

/// When every layer is done on the rank that inverts longest, and every gradient there.
double end_of_layers(const PlacementProblem& problem, const Timetable& table,
                     const Placement& placement);

}  // namespace linerate::plan
