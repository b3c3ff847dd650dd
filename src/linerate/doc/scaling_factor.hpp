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

/// T_1 over the step, whose seconds are more than 0. There is none if all of T_1's interval is
/// above the step. No rank is faster among others than alone, so the two were measured under
/// different load.
ScalingFactor scaling_factor_of(const Bounded& one_rank_s, double step_s);

}  // namespace linerate::doc
