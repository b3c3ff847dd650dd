// The small dense algebra of PowerSGD and ACP-SGD on the host: random vectors, and Gram-Schmidt in
// double. A factor has a few vectors of some thousand elements, so this takes little time next to
// the products with the matrix (kernel/low_rank.hpp).
#include "linerate/compress/factors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {
namespace {

/// Subtracts from vector j its parts along the vectors before it, twice. Then scales it to length
/// 1. If no more than `least` is left of it, it becomes zero and the answer is false.
bool orthonormalise_one(std::span<double> vectors, std::size_t n, std::size_t j, double least) {
  const std::span<double> v = vectors.subspan(j * n, n);
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < j; ++i) {
      const std::span<const double> before = vectors.subspan(i * n, n);
      subtract_multiple(v, dot(v, before), before);
    }
  const double norm = std::sqrt(dot(v, v));
  const bool is_there = norm > least && std::isfinite(norm);  // false for a NaN
  for (double& x : v) x = is_there ? x / norm : 0;
  return is_there;
}

/// Vector by vector, from the first. Example: (1, 0, 0), (1, 1, 0) and (2, 1, 0). The first stays.
/// The second becomes (0, 1, 0). The third is 2 times the first plus 1 times the second, so nothing
/// is left of it, and on_vanished() is called for number 2.
template <class OnVanished>
void orthonormalise_all(std::span<float> factor, std::size_t rank, OnVanished on_vanished) {
  std::vector<double> vectors(factor.begin(), factor.end());
  const double least = kVanished * std::sqrt(dot(vectors, vectors));
  for (std::size_t j = 0; j < rank; ++j)
    if (!orthonormalise_one(vectors, factor.size() / rank, j, least)) on_vanished(vectors, j);
  std::transform(vectors.begin(), vectors.end(), factor.begin(),
                 [](double x) { return static_cast<float>(x); });
}

}  // namespace

std::int64_t read_rank(doc::OptionReader& options) {
  const std::int64_t rank = options.integer("rank", 4);
  if (rank < 1 || rank > 1024) options.refuse("rank", "a number from 1 to 1024");
  return rank;
}

std::int64_t rank_of(std::int64_t rank, const Shape& shape) {
  return std::min({rank, shape.rows, shape.columns()});
}

bool is_worth_factors(std::int64_t rank, const Shape& shape) {
  if (shape.rows < 2 || shape.columns() < 2) return false;
  return rank_of(rank, shape) * (shape.rows + shape.columns()) * 2 < shape.elements;
}

void fill_random(std::uint64_t key, std::size_t j, std::span<float> vector) {
  const std::uint64_t stream = random_key(key, j);
  for (std::size_t i = 0; i < vector.size(); ++i)
    vector[i] = static_cast<float>(2 * random_unit(stream, i) - 1);
}

std::vector<std::size_t> orthonormalise(std::span<float> factor, std::size_t rank) {
  std::vector<std::size_t> vanished;
  orthonormalise_all(factor, rank, [&](auto&, std::size_t j) { vanished.push_back(j); });
  return vanished;
}

void orthonormalise_fresh(std::span<float> factor, std::size_t rank, std::uint64_t key) {
  std::vector<float> fresh(factor.size() / rank);
  orthonormalise_all(factor, rank, [&](std::vector<double>& vectors, std::size_t j) {
    // A random direction is almost never one of the others; another one is tried if it is.
    for (std::size_t trial = 0; trial < 8; ++trial) {
      fill_random(key, j + trial * rank, fresh);
      std::copy(fresh.begin(), fresh.end(), &vectors[j * fresh.size()]);
      if (orthonormalise_one(vectors, fresh.size(), j, kVanished)) return;
    }
  });
}

/// Let F be the largest f32. A row of the matrix has length F sqrt(n) at most, so its product with
/// a unit vector is at most that. A sum over ranks is at most `ranks` times as much. Example: 3
/// ranks and n = 100 can exceed F by 30 times. The power of two that makes up for it is 1/32, and
/// the answer is 1/64: one more bit leaves room for rounding.
float headroom(int ranks, std::size_t n) {
  const double most = static_cast<double>(ranks) * std::sqrt(static_cast<double>(n));
  return static_cast<float>(std::exp2(-std::ceil(std::log2(most)) - 1));
}

// Thresholds from fitted distributions, for sidco. Each is the magnitude x for which the share of
// larger magnitudes is `ratio`.
//
// Example: magnitudes of mean 1 that are exponential. The share above x is e^-x, so a share of .01
// has x = -ln .01 = 4.6. With a variance of 3 instead of 1 the Pareto fit has kappa = -1/3 and
// alpha = 2/3. Its x is 2 (.01^(-1/3) - 1) = 7.3: a heavier tail needs a higher threshold.

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
