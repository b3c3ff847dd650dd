// The curve goes through the samples, because a library's times follow no simple law: protocols and
// algorithms change with size. Only samples that all others contradict are passed over.
//
// Example. 1, 2, 4, 8 and 16 MiB take 1, 2, 4, 12 and 16 ms. For 8 MiB the join of its neighbours,
// the line through the smaller sizes and the larger size all say 8 ms. They contradict the 12 ms in
// one direction: an outlier. Had 16 MiB taken 24 ms, the right side would say 12 ms. Then 8 MiB is
// the first size of another algorithm, and stays.
#include "linerate/calibrate/curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

using SampleSpan = std::span<const doc::CostSample>;

constexpr std::size_t kSamplesAtEnd = 4;
constexpr std::size_t kFewestToJudge = 4;  // samples: one may be an outlier
constexpr std::size_t kSamplesBeside = 4;
constexpr double kLeastInNoise = 2;
constexpr double kMostNoise = 0.10;  // more is a table of few sizes with outliers

double on_line(const doc::CostSample& a, const doc::CostSample& b, double bytes) {
  return a.seconds + (b.seconds - a.seconds) / (b.bytes - a.bytes) * (bytes - a.bytes);
}

/// How far sample i is off, in units of the allowed distance; above 1 it is an outlier. It is then
/// off the join of its neighbours by more than `allowed`. It is also off the lines of up to four
/// samples on either side, by more than half of that. All three must differ in one direction.
///
/// A sample at a change of algorithm agrees with one side, an outlier with none. A lone sample
/// before it allows two laws: the time stays, or it grows with the bytes. Both must be
/// contradicted.
double excess(SampleSpan samples, const RelativeLines& lines, std::size_t i, double allowed) {
  const doc::CostSample &before = samples[i - 1], &here = samples[i], &after = samples[i + 1];
  double least = INFINITY, sign = 0;
  const auto compare = [&](double expected, double tolerance) {
    const double off = std::log(here.seconds / expected);
    if (sign * off < 0) least = 0;
    sign = off;
    least = std::min(least, std::abs(off) / tolerance);
  };
  compare(on_line(before, after, here.bytes), allowed);
  // A side is as long as one line explains it: a change of algorithm may be near.
  const auto compare_side = [&](std::size_t most, const auto& line_of) {
    std::size_t n = std::min(most, kSamplesBeside);
    Line line = line_of(n);
    while (n > 2 && std::sqrt(line.squared_error / static_cast<double>(n)) > allowed / 2)
      line = line_of(--n);
    compare(line.at(here.bytes), allowed / 2);
  };
  compare_side(i, [&](std::size_t n) { return lines.fit(i - n, i); });
  compare_side(samples.size() - 1 - i, [&](std::size_t n) { return lines.fit(i + 1, i + 1 + n); });
  if (i == 1) compare(before.seconds, allowed / 2);
  return least;
}

/// The straight piece of this slope through a sample.
doc::CostSegment piece(std::int64_t from, std::int64_t to, const doc::CostSample& through,
                       double beta) {
  return {from, to, through.seconds - beta * through.bytes, beta, 1, 1};
}

std::vector<doc::CostSample> without_outliers(SampleSpan samples) {
  const std::vector<bool> outliers = find_outliers(samples);
  std::vector<doc::CostSample> kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!outliers[i]) kept.push_back(samples[i]);
  return kept;
}

// A library changes its algorithm or protocol at some sizes, and the time then follows another
// line. Between the changes one line explains the samples. find_runs() chooses the changes by
// dynamic programming, find_switches() keeps those at which the time jumps.
//
// Example. 1, 2, 4, 8, 16 and 32 MiB take 1, 2, 4, 5, 9 and 17 ms. The best single line misses 1, 2
// and 4 MiB by 13 to 29 %. Two runs of three fit exactly: 1 ms a MiB up to 4 MiB, then 1 + 0.5 ms a
// MiB. Their lines are 5.7 and 3.8 ms in the middle of the gap, at 5.7 MiB. That is a jump, so
// between 4 and 8 MiB either line may hold.

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

/// The cut into runs with the least sum of squared relative errors / noise^2 + penalty for each
/// run. It is the exact optimum, by dynamic programming over the breakpoints: O(n^2) with
/// constant-time fits. A run has at least three samples, because two would fit any noise exactly.
/// The penalty is 4 ln n: a Bayesian information criterion over alpha, beta and the breakpoint,
/// rounded up. Source: Bellman and Roth 1969, "Curve fitting by segmented straight lines".
///
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

/// Boundaries of runs at which the time jumps. A line goes through at most four samples on either
/// side. In the middle of the gap the two lines differ by more than 10 % and more than twice the
/// noise. A slower bend is no switch: it gets more runs, and no wider interval.
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

// The sample that is furthest off goes first, because it makes its neighbours look wrong. Then all
// are judged anew. Neighbours that are off together are no chance but a regime of their own, and
// stay.
std::vector<bool> find_outliers(SampleSpan samples) {
  std::vector<bool> is_outlier(samples.size(), false);
  const auto large = std::find_if(samples.begin(), samples.end(), [](const doc::CostSample& s) {
    return cost::tolerance_at(s.bytes) < cost::tolerance_at(0);
  });
  const double noise = noise_of(samples.subspan(to_index(large - samples.begin())));
  const double least = kLeastInNoise * std::min(noise, kMostNoise);
  std::vector<doc::CostSample> left(samples.begin(), samples.end());
  std::vector<std::size_t> number(samples.size());
  std::iota(number.begin(), number.end(), std::size_t{0});
  while (left.size() > kFewestToJudge) {
    const RelativeLines lines(left);
    std::size_t worst = 0;
    double most = 0;
    for (std::size_t i = 1; i + 1 < left.size(); ++i) {
      const double allowed = std::max(std::log(cost::tolerance_at(left[i].bytes)), least);
      const double off = excess(left, lines, i, allowed);
      if (off > 1 && off * allowed > most) most = off * allowed, worst = i;
    }
    if (worst == 0) break;
    is_outlier[number[worst]] = true;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(worst));
    number.erase(number.begin() + static_cast<std::ptrdiff_t>(worst));
  }
  std::vector<bool> stands_alone = is_outlier;
  for (std::size_t i = 1; i < samples.size(); ++i)
    if (is_outlier[i] && is_outlier[i - 1]) stands_alone[i] = stands_alone[i - 1] = false;
  return stands_alone;
}

/// Segments are cut at every size, outliers included, so that tables with and without a sample have
/// comparable pieces. At an outlier the curve passes by on the join of its kept neighbours.
Curve::Curve(SampleSpan samples)
    : kept(without_outliers(samples)),
      lines(kept),
      runs(find_runs(kept, lines, noise_of(samples))),
      switches(find_switches(kept, lines, runs, noise_of(samples))) {
  const std::size_t n = kept.size();
  const Line first = lines.fit(0, std::min(runs.front().last, kSamplesAtEnd));
  const Line last = lines.fit(std::max(runs.back().first, n - std::min(n, kSamplesAtEnd)), n);
  // Half the bytes never take less than half the time, so the first alpha is not negative.
  const doc::CostSample& least = kept.front();
  segments.push_back(piece(0, std::llround(least.bytes), least,
                           std::min(first.beta_s_per_byte, least.seconds / least.bytes)));
  for (std::size_t i = 0, k = 0; i + 1 < samples.size(); ++i) {
    const doc::CostSample &from = kept[k], &to = kept[k + 1];
    const auto at = [&](const doc::CostSample& s) {
      return doc::CostSample{s.bytes, on_line(from, to, s.bytes)};
    };
    const doc::CostSample a = at(samples[i]), b = at(samples[i + 1]);
    segments.push_back(piece(std::llround(a.bytes), std::llround(b.bytes), a,
                             (b.seconds - a.seconds) / (b.bytes - a.bytes)));
    if (samples[i + 1].bytes >= to.bytes) ++k;
  }
  const std::int64_t most = std::llround(kept.back().bytes);
  segments.push_back(piece(most, 2 * most, kept.back(), last.beta_s_per_byte));
}

// Divided by T_i, the residual of a sample is alpha / T_i + beta S_i / T_i - 1. That is linear in
// alpha and beta, so the normal equations need five sums over the samples. Kept as prefix sums,
// they give the fit of any run by one subtraction each, which makes the dynamic program of
// curve.cpp cheap.

RelativeLines::RelativeLines(std::span<const doc::CostSample> samples)
    : prefix_(samples.size() + 1) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const long double u = 1.0L / samples[i].seconds;
    const long double v = samples[i].bytes * u;
    const Sums& before = prefix_[i];
    prefix_[i + 1] = {before.uu + u * u, before.vv + v * v, before.uv + u * v, before.u + u,
                      before.v + v};
  }
}

/// Solves the two normal equations. If a coefficient would be negative, the best point lies on an
/// edge of the quarter plane. Then it is a constant, or a line through the origin.
Line RelativeLines::fit(std::size_t first, std::size_t last) const {
  LINERATE_CHECK(first < last && last < prefix_.size(), "an empty run of samples");
  const Sums& a = prefix_[first];
  const Sums& b = prefix_[last];
  const long double uu = b.uu - a.uu, vv = b.vv - a.vv, uv = b.uv - a.uv, u = b.u - a.u,
                    v = b.v - a.v;
  const auto n = static_cast<long double>(last - first);
  // sum (alpha u + beta v - 1)^2, expanded.
  const auto line = [&](long double alpha, long double beta) {
    const long double error = alpha * alpha * uu + beta * beta * vv + 2 * alpha * beta * uv -
                              2 * alpha * u - 2 * beta * v + n;
    return Line{static_cast<double>(alpha), static_cast<double>(beta),
                std::max(0.0, static_cast<double>(error))};
  };
  const Line through_origin = line(0, v / vv);
  if (last - first == 1) return through_origin;
  const long double determinant = uu * vv - uv * uv;
  // Equal sizes make the system singular; the samples given here are distinct, so this guards
  // rounding only.
  if (determinant > 1e-15L * uu * vv) {
    const long double alpha = (u * vv - v * uv) / determinant;
    const long double beta = (v * uu - u * uv) / determinant;
    if (alpha >= 0 && beta >= 0) return line(alpha, beta);
  }
  // The best point of the quarter plane lies on one of its edges.
  const Line constant = line(u / uu, 0);
  return constant.squared_error < through_origin.squared_error ? constant : through_origin;
}

double sustained_s_per_byte(std::span<const doc::CostSample> samples) {
  constexpr std::size_t kLargest = 8;
  samples = samples.last(std::min(samples.size(), kLargest));
  std::vector<std::pair<double, double>> slopes;  // with their weight
  double all = 0;
  for (std::size_t j = 1; j < samples.size(); ++j)
    for (std::size_t i = 0; i < j; ++i) {
      const double bytes = samples[j].bytes - samples[i].bytes;
      slopes.emplace_back((samples[j].seconds - samples[i].seconds) / bytes, bytes);
      all += bytes;
    }
  std::sort(slopes.begin(), slopes.end());
  double below = 0;
  for (const auto& [slope, weight] : slopes)
    if ((below += weight) >= all / 2) return slope;
  return 0;
}

}  // namespace linerate::calibrate
