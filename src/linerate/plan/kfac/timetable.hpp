// When the work placed on ranks is done.
#pragma once

#include <vector>

#include "linerate/plan/kfac/placement_problem.hpp"

namespace linerate::plan {

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
