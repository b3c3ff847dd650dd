#include "linerate/calibrate/curve.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::calibrate {
namespace {

using SampleSpan = std::span<const doc::CostSample>;

constexpr double kPiecesPerDoubling = 8;
constexpr std::size_t kSamplesAtEnd = 4;

struct Point {
  double bytes, seconds;
};

/// Appends the straight piece from one point to the next.
void join(std::vector<doc::CostSegment>& segments, Point a, Point b) {
  const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
  segments.push_back(
      {std::llround(a.bytes), std::llround(b.bytes), a.seconds - beta * a.bytes, beta, 1, 1});
}

/// Slopes of the monotone cubic through (x, y). Source: Fritsch and Butland 1984, weighted harmonic
/// mean.
std::vector<double> monotone_slopes(const std::vector<double>& x, const std::vector<double>& y) {
  const std::size_t n = x.size();
  std::vector<double> slope(n, 0.0);
  const auto secant = [&](std::size_t i) { return (y[i + 1] - y[i]) / (x[i + 1] - x[i]); };
  for (std::size_t i = 1; i + 1 < n; ++i) {
    const double before = secant(i - 1), after = secant(i);
    if (before * after <= 0) continue;  // a local extremum stays one
    const double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i];
    slope[i] = 3 * (h0 + h1) / ((2 * h1 + h0) / before + (h1 + 2 * h0) / after);
  }
  slope.front() = secant(0);
  slope.back() = secant(n - 2);
  return slope;
}

/// The regime samples[first, last) as points on a curve: the relative line times exp(cubic of the
/// log deviation).
std::vector<Point> smooth_points(SampleSpan regime, const Line& line) {
  std::vector<double> x, y;
  for (const doc::CostSample& s : regime) {
    x.push_back(std::log(s.bytes));
    y.push_back(std::log(s.seconds / line.at(s.bytes)));
  }
  const std::vector<double> slope = monotone_slopes(x, y);
  std::vector<Point> points{{regime.front().bytes, regime.front().seconds}};
  for (std::size_t i = 0; i + 1 < regime.size(); ++i) {
    const double h = x[i + 1] - x[i];
    const int pieces =
        std::max(1, static_cast<int>(std::lround(kPiecesPerDoubling * h / std::log(2.0))));
    for (int k = 1; k < pieces; ++k) {
      const double t = static_cast<double>(k) / pieces, s = 1 - t;
      const double deviation = (1 + 2 * t) * s * s * y[i] + t * s * s * h * slope[i] +
                               t * t * (3 - 2 * t) * y[i + 1] - t * t * s * h * slope[i + 1];
      // Cut at whole bytes: a document's segments touch exactly.
      const double bytes = std::round(std::exp(x[i] + t * h));
      if (bytes > points.back().bytes && bytes < regime[i + 1].bytes)
        points.push_back({bytes, line.at(bytes) * std::exp(deviation)});
    }
    points.push_back({regime[i + 1].bytes, regime[i + 1].seconds});
  }
  return points;
}

std::vector<Point> points_of(SampleSpan samples, const Structure& structure, CurveShape shape) {
  std::vector<Point> points;
  if (shape == CurveShape::lines) {
    for (const Run& run : structure.runs) {
      const Line line = structure.lines.fit(run.first, run.last);
      // Cut at the sizes: each gap between two has an interval of its own.
      for (std::size_t i = run.first; i < run.last; ++i)
        points.push_back({samples[i].bytes, line.at(samples[i].bytes)});
    }
    return points;
  }
  std::size_t first = 0;
  for (std::size_t k = 0; k <= structure.switches.size(); ++k) {
    const std::size_t last =
        k < structure.switches.size() ? structure.switches[k].after + 1 : samples.size();
    const SampleSpan regime = samples.subspan(first, last - first);
    if (shape == CurveShape::smooth && regime.size() > 2) {
      const std::vector<Point> curve = smooth_points(regime, structure.lines.fit(first, last));
      points.insert(points.end(), curve.begin(), curve.end());
    } else {
      for (const doc::CostSample& s : regime) points.push_back({s.bytes, s.seconds});
    }
    first = last;
  }
  return points;
}

/// The piece below the smallest size: half the bytes never take less than half the time, so alpha
/// >= 0.
doc::CostSegment before_first(Point first, const Line& line) {
  const double beta = std::min(line.beta_s_per_byte, first.seconds / first.bytes);
  return {0, std::llround(first.bytes), first.seconds - beta * first.bytes, beta, 1, 1};
}

doc::CostSegment after_last(Point last, const Line& line) {
  const double beta = line.beta_s_per_byte;
  return {std::llround(last.bytes),
          2 * std::llround(last.bytes),
          last.seconds - beta * last.bytes,
          beta,
          1,
          1};
}

}  // namespace

Structure::Structure(SampleSpan samples)
    : lines(samples),
      runs(find_runs(samples, lines)),
      switches(find_switches(samples, lines, runs)) {}

std::vector<doc::CostSegment> draw(SampleSpan samples, const Structure& structure,
                                   CurveShape shape) {
  const std::vector<Point> points = points_of(samples, structure, shape);
  const std::size_t n = samples.size();
  const Line first_line =
      structure.lines.fit(0, std::min(structure.runs.front().last, kSamplesAtEnd));
  const Line last_line =
      structure.lines.fit(std::max(structure.runs.back().first, n - std::min(n, kSamplesAtEnd)), n);
  std::vector<doc::CostSegment> segments{before_first(points.front(), first_line)};
  for (std::size_t i = 0; i + 1 < points.size(); ++i) join(segments, points[i], points[i + 1]);
  segments.push_back(after_last(points.back(), last_line));
  return segments;
}

}  // namespace linerate::calibrate
