#include "linerate/evaluation/steps_ratio.hpp"

#include <algorithm>

#include "linerate/core/statistics.hpp"

namespace linerate::evaluation {

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
