// Divided by T_i, the residual of a sample is alpha / T_i + beta S_i / T_i - 1. That is linear in
// alpha and beta, so the normal equations need five sums over the samples. Kept as prefix sums,
// they give the fit of any run by one subtraction each, which makes the dynamic program of
// regimes.cpp cheap.
#include "linerate/calibrate/relative_line.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::calibrate {

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
