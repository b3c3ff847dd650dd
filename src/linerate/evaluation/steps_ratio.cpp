#include "linerate/evaluation/steps_ratio.hpp"

#include <algorithm>

#include "linerate/core/statistics.hpp"

namespace linerate::evaluation {

// An example: runs of 120, 130 and 150 steps against 100 and 110. The ratio is 130 / 105 = 1.24,
// and the interval reaches from 120 / 110 = 1.09 to 150 / 100 = 1.5.
doc::Bounded steps_ratio(std::span<const double> steps, std::span<const double> uncompressed) {
  doc::Bounded ratio{median(steps) / median(uncompressed)};
  if (steps.size() + uncompressed.size() <= 2) return ratio;
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  const auto [shortest, longest] = std::minmax_element(uncompressed.begin(), uncompressed.end());
  ratio.low = *least / *longest;
  ratio.high = *most / *shortest;
  return ratio;
}

}  // namespace linerate::evaluation
