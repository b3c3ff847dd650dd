// Thresholds from distributions fitted to magnitudes: SIDCo, Abdelmoniem et al. 2021 (MLSys, arXiv
// 2101.10761).
#pragma once

#include <cstdint>

namespace linerate::compress {

enum class TailDistribution : std::uint8_t { exponential, pareto, gamma };

/// Moments of magnitudes x > 0. The variance has divisor count - 1; only the Gamma fit reads
/// mean_log, the mean of ln x.
struct FitMoments {
  double mean = 0, variance = 0, mean_log = 0;
};

/// The magnitude that a share `ratio` of the fitted distribution exceeds, 0 < ratio <= 1. Not
/// finite if the moments fit none.
double fitted_threshold(TailDistribution fit, const FitMoments& x, double ratio);
/// As fitted_threshold(), for the excess y = x - m of a tail over its smallest member m. Magnitudes
/// beyond a threshold follow a generalised Pareto law in the limit. So the Gamma fit takes that law
/// here.
double fitted_excess(TailDistribution fit, const FitMoments& y, double ratio);

/// x with Q(a, x) = q, Q the regularised upper incomplete gamma function; a > 0, 0 < q <= 1. To
/// 1e-12 relative.
double inverse_upper_gamma(double a, double q);

}  // namespace linerate::compress
