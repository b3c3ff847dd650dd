// Costs that are no lines, for rules that know only lines.
#pragma once

#include <algorithm>

#include "linerate/cost/closed_form.hpp"

namespace linerate::plan {

/// The line through the costs of two sizes; flat if they fall, and never below 0 at size 0.
inline cost::Line line_through(double least, double least_s, double most, double most_s) {
  const double beta = most > least ? std::max(0.0, (most_s - least_s) / (most - least)) : 0;
  return {std::max(0.0, least_s - beta * least), beta};
}

}  // namespace linerate::plan
