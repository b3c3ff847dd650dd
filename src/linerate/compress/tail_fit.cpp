// Thresholds from fitted distributions, for sidco. Each is the magnitude x for which the share of
// larger magnitudes is `ratio`.
//
// Example: magnitudes of mean 1 that are exponential. The share above x is e^-x, so a share of .01
// has x = -ln .01 = 4.6. With a variance of 3 instead of 1 the Pareto fit has kappa = -1/3 and
// alpha = 2/3. Its x is 2 (.01^(-1/3) - 1) = 7.3: a heavier tail needs a higher threshold.
#include "linerate/compress/tail_fit.hpp"

#include <cmath>
#include <limits>

namespace linerate::compress {
namespace {

double exponential_threshold(double mean, double ratio) { return -mean * std::log(ratio); }

/// Generalised Pareto by moments: kappa = (mean^2 / variance - 1) / 2 and alpha = mean (1 + kappa).
/// The share above x is (1 - kappa x / alpha)^(1 / kappa). Near kappa = 0 that is the exponential,
/// and the formula for x would divide 0 by 0.
double pareto_threshold(const FitMoments& x, double ratio) {
  const double shape = x.mean * x.mean / x.variance;
  const double kappa = (shape - 1) / 2;
  const double alpha = x.mean * (shape + 1) / 2;
  if (std::abs(kappa) < 1e-6) return -alpha * std::log(ratio);
  return -alpha * std::expm1(kappa * std::log(ratio)) / kappa;
}

/// Gamma by the closed form near maximum likelihood, from s = ln mean - mean ln x (Minka 2002). By
/// Jensen s > 0, unless all magnitudes are equal, and then no Gamma fits.
double gamma_threshold(const FitMoments& x, double ratio) {
  const double s = std::log(x.mean) - x.mean_log;
  if (!(s > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double a = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  return x.mean / a * inverse_upper_gamma(a, ratio);
}

/// x^a e^-x / Gamma(a), the common factor of series and fraction.
double gamma_factor(double a, double x) { return std::exp(a * std::log(x) - x - std::lgamma(a)); }

/// Q(a, x): 1 - the power series below a + 1, Lentz's continued fraction above (Abramowitz & Stegun
/// 6.5.29 and 6.5.31).
double upper_gamma(double a, double x) {
  constexpr double kSmall = 1e-16;
  constexpr int kMost = 100000;
  if (x <= 0) return 1;
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int i = 1; i < kMost && term > kSmall * sum; ++i) sum += term *= x / (a + i);
    return 1 - sum * gamma_factor(a, x);
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, fraction = d;
  for (int i = 1; i < kMost; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    fraction *= d * c;
    if (std::abs(d * c - 1) < kSmall) break;
  }
  return fraction * gamma_factor(a, x);
}

}  // namespace

/// Q falls from 1 to 0 as x grows. So `high` is doubled until Q is below q, and then the interval
/// is halved.
double inverse_upper_gamma(double a, double q) {
  double low = 0, high = a + 1;
  while (upper_gamma(a, high) > q) {
    low = high;
    high *= 2;
  }
  // Halving the interval: some forty evaluations, for tensors of thousands of elements.
  while (high - low > 1e-12 * high) {
    const double middle = (low + high) / 2;
    (upper_gamma(a, middle) > q ? low : high) = middle;
    if (high < 1e-300) return 0;
  }
  return (low + high) / 2;
}

double fitted_threshold(TailDistribution fit, const FitMoments& x, double ratio) {
  switch (fit) {
    case TailDistribution::exponential:
      return exponential_threshold(x.mean, ratio);
    case TailDistribution::pareto:
      return pareto_threshold(x, ratio);
    case TailDistribution::gamma:
      return gamma_threshold(x, ratio);
  }
  return 0;
}

double fitted_excess(TailDistribution fit, const FitMoments& y, double ratio) {
  return fit == TailDistribution::exponential ? exponential_threshold(y.mean, ratio)
                                              : pareto_threshold(y, ratio);
}

}  // namespace linerate::compress
