// A library changes its algorithm or protocol at some sizes, and the time then follows another
// line. Between the changes one line explains the samples. find_runs() chooses the changes by
// dynamic programming, find_switches() keeps those at which the time jumps.
//
// Example. 1, 2, 4, 8, 16 and 32 MiB take 1, 2, 4, 5, 9 and 17 ms. The best single line misses 1, 2
// and 4 MiB by 13 to 29 %. Two runs of three fit exactly: 1 ms a MiB up to 4 MiB, then 1 + 0.5 ms a
// MiB. Their lines are 5.7 and 3.8 ms in the middle of the gap, at 5.7 MiB. That is a jump, so
// between 4 and 8 MiB either line may hold.
#include "linerate/calibrate/regimes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::size_t kFewestSamples = 3;
// Repeated collectives agree to about 2 % on an idle cluster; a residual below that is no reason
// for a breakpoint.
constexpr double kLeastNoise = 0.02;
constexpr double kLeastJump = 0.10;
constexpr double kLeastJumpInNoise = 2;
constexpr std::size_t kSamplesBesideSwitch = 4;

/// Sample i against the straight join of its neighbours: deviation / noise has a known spread.
struct Bend {
  double value = 0;
  double before = 0, after = 0;  // weights of the neighbours' noise in `value`; its own weighs 1
};

std::vector<Bend> bends_of(std::span<const doc::CostSample> samples) {
  std::vector<Bend> bends;
  for (std::size_t i = 1; i + 1 < samples.size(); ++i) {
    const doc::CostSample &a = samples[i - 1], &b = samples[i], &c = samples[i + 1];
    const double w = (b.bytes - a.bytes) / (c.bytes - a.bytes);
    const double joined = (1 - w) * a.seconds + w * c.seconds;
    bends.push_back({b.seconds / joined - 1, (1 - w) * a.seconds / joined, w * c.seconds / joined});
  }
  return bends;
}

}  // namespace

double noise_of(std::span<const doc::CostSample> samples) {
  const std::vector<Bend> bends = bends_of(samples);
  std::vector<double> once, twice;
  for (std::size_t i = 0; i < bends.size(); ++i) {
    const Bend& b = bends[i];
    once.push_back(std::abs(b.value) / std::hypot(1, b.before, b.after));
    if (i == 0) continue;
    // A steady bend cancels in the difference of two neighbours; noise does not.
    const Bend& a = bends[i - 1];
    const double spread = std::hypot(std::hypot(a.before, 1 + b.before), 1 + a.after, b.after);
    twice.push_back(std::abs(b.value - a.value) / spread);
  }
  if (twice.empty()) return kLeastNoise;
  return std::max(kLeastNoise, std::min(median(once), median(twice)) / kMedianOfNormal);
}

/// best[last] is the least cost of the samples before `last`, cut into runs in the best way. Its
/// last run begins at some `first`, and what comes before is cut in its best way, best[first]. So
/// all `first` are tried, and start[] remembers the best one. The cuts are read from the end.
std::vector<Run> find_runs(std::span<const doc::CostSample> samples, const RelativeLines& lines,
                           double noise) {
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
          best[first] + penalty + lines.fit(first, last).squared_error / (noise * noise);
      if (cost < best[last]) best[last] = cost, start[last] = first;
    }
  }
  std::vector<Run> runs;
  for (std::size_t last = n; last > 0; last = start[last]) runs.push_back({start[last], last});
  std::reverse(runs.begin(), runs.end());
  return runs;
}

std::vector<Switch> find_switches(std::span<const doc::CostSample> samples,
                                  const RelativeLines& lines, std::span<const Run> runs,
                                  double noise) {
  std::vector<Switch> found;
  const double least_jump = std::max(kLeastJump, kLeastJumpInNoise * noise);
  for (std::size_t r = 0; r + 1 < runs.size(); ++r) {
    const std::size_t border = runs[r].last;
    const std::size_t left_first =
        std::max(runs[r].first, border - std::min(border, kSamplesBesideSwitch));
    const std::size_t right_last = std::min(runs[r + 1].last, border + kSamplesBesideSwitch);
    const Line left = lines.fit(left_first, border);
    const Line right = lines.fit(border, right_last);
    const double middle = std::sqrt(samples[border - 1].bytes * samples[border].bytes);
    if (std::abs(std::log(left.at(middle) / right.at(middle))) > least_jump)
      found.push_back({border - 1, left, right});
  }
  return found;
}

}  // namespace linerate::calibrate
