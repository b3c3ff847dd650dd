#include "linerate/calibrate/regimes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace linerate::calibrate {
namespace {

constexpr std::size_t kFewestSamples = 3;
// Repeated collectives agree to about 2 % on an idle cluster; a residual below that is no reason
// for a breakpoint.
constexpr double kNoise = 0.02;
constexpr double kLeastJump = 0.10;
constexpr std::size_t kSamplesBesideSwitch = 4;

}  // namespace

std::vector<Run> find_runs(std::span<const doc::CostSample> samples, const RelativeLines& lines) {
  const std::size_t n = samples.size();
  if (n < 2 * kFewestSamples) return {{0, n}};
  const double penalty = 4 * std::log(static_cast<double>(n));
  std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> start(n + 1, 0);
  best[0] = 0;
  for (std::size_t last = kFewestSamples; last <= n; ++last) {
    for (std::size_t first = 0; first + kFewestSamples <= last; ++first) {
      if (best[first] + penalty >= best[last]) continue;
      const double cost =
          best[first] + penalty + lines.fit(first, last).squared_error / (kNoise * kNoise);
      if (cost < best[last]) best[last] = cost, start[last] = first;
    }
  }
  std::vector<Run> runs;
  for (std::size_t last = n; last > 0; last = start[last]) runs.push_back({start[last], last});
  std::reverse(runs.begin(), runs.end());
  return runs;
}

std::vector<Switch> find_switches(std::span<const doc::CostSample> samples,
                                  const RelativeLines& lines, std::span<const Run> runs) {
  std::vector<Switch> found;
  for (std::size_t r = 0; r + 1 < runs.size(); ++r) {
    const std::size_t border = runs[r].last;
    const std::size_t left_first =
        std::max(runs[r].first, border - std::min(border, kSamplesBesideSwitch));
    const std::size_t right_last = std::min(runs[r + 1].last, border + kSamplesBesideSwitch);
    const Line left = lines.fit(left_first, border);
    const Line right = lines.fit(border, right_last);
    const double middle = std::sqrt(samples[border - 1].bytes * samples[border].bytes);
    if (std::abs(std::log(left.at(middle) / right.at(middle))) > kLeastJump)
      found.push_back({border - 1, left, right});
  }
  return found;
}

}  // namespace linerate::calibrate
