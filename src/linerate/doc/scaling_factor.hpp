// Private: T_1 over T_n where both were measured.
#pragma once

#include <optional>
#include <string>

#include "linerate/doc/bounded.hpp"

namespace linerate::doc {

struct ScalingFactor {
  std::optional<double> value;
  std::string why_none;  // for people; empty if there is a value
};

/// None if all of T_1's interval is above the step, > 0 s: no rank is faster among others than
/// alone, so that the two were measured under different load.
ScalingFactor scaling_factor_of(const Bounded& one_rank_s, double step_s);

}  // namespace linerate::doc
