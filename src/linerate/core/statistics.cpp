#include "linerate/core/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate {

/// Type 7: the quantile's position among the n sorted samples is q (n - 1), and between two samples
/// it is interpolated. For example the 0.9 quantile of 1, 2, 3, 4 is at position 2.7, so it is 3.7.
double quantile(std::span<const double> samples, double q) {
  LINERATE_CHECK(!samples.empty(), "quantile of no samples");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double mean(std::span<const double> samples) {
  LINERATE_CHECK(!samples.empty(), "mean of no samples");
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

}  // namespace linerate
