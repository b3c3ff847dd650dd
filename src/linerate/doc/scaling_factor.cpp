#include "linerate/doc/scaling_factor.hpp"

#include <fmt/format.h>

#include "linerate/core/text.hpp"

namespace linerate::doc {

// An example: T_1 is 100 ms (95 .. 105) and the step 90 ms. All of T_1's interval is above the
// step, so there is no factor: the two were measured under different load. With a step of 98 ms the
// factor is 1.02, which is rounding and noise.
ScalingFactor scaling_factor_of(const Bounded& one_rank_s, double step_s) {
  constexpr double kRounding = 1e-3;
  const double least = one_rank_s.low_or_value();
  if (least <= (1 + kRounding) * step_s) return {one_rank_s.value / step_s, ""};
  return {std::nullopt,
          fmt::format("no scaling factor: T_1, {}{}, is above the step of {}, as if a rank were "
                      "faster among others than alone. The two were measured under different load. "
                      "Record both again, one after the other",
                      format_time(least), one_rank_s.low ? " or more" : "", format_time(step_s))};
}

}  // namespace linerate::doc
