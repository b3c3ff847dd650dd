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
#include <numeric>

#include "linerate/core/index.hpp"
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

/// Appends the straight piece from one sample to the next.
void join(std::vector<doc::CostSegment>& segments, const doc::CostSample& a,
          const doc::CostSample& b) {
  const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
  segments.push_back(
      {std::llround(a.bytes), std::llround(b.bytes), a.seconds - beta * a.bytes, beta, 1, 1});
}

/// The piece below the smallest size. Half the bytes never take less than half the time, so its
/// alpha is not negative.
doc::CostSegment before_first(const doc::CostSample& first, const Line& line) {
  const double beta = std::min(line.beta_s_per_byte, first.seconds / first.bytes);
  return {0, std::llround(first.bytes), first.seconds - beta * first.bytes, beta, 1, 1};
}

doc::CostSegment after_last(const doc::CostSample& last, const Line& line) {
  const double beta = line.beta_s_per_byte;
  const std::int64_t bytes = std::llround(last.bytes);
  return {bytes, 2 * bytes, last.seconds - beta * last.bytes, beta, 1, 1};
}

std::vector<doc::CostSample> without_outliers(SampleSpan samples) {
  const std::vector<bool> outliers = find_outliers(samples);
  std::vector<doc::CostSample> kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!outliers[i]) kept.push_back(samples[i]);
  return kept;
}

}  // namespace

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
  segments.push_back(before_first(kept.front(), first));
  for (std::size_t i = 0, k = 0; i + 1 < samples.size(); ++i) {
    const doc::CostSample &from = kept[k], &to = kept[k + 1];
    const auto at = [&](const doc::CostSample& s) {
      return doc::CostSample{s.bytes, on_line(from, to, s.bytes)};
    };
    join(segments, at(samples[i]), at(samples[i + 1]));
    if (samples[i + 1].bytes >= to.bytes) ++k;
  }
  segments.push_back(after_last(kept.back(), last));
}

}  // namespace linerate::calibrate
