// Robust summaries of repeated measurements.
#pragma once

#include <span>

namespace linerate {

/// Linear interpolation between order statistics (type 7), q in [0, 1]. `samples` must not be
/// empty.
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }
double mean(std::span<const double> samples);

// For a normal distribution with deviation 1.
inline constexpr double kMedianOfNormal = 0.6745;  // of |x|
inline constexpr double kNormal90 = 1.645;         // |x| is less in 90 of 100 cases

}  // namespace linerate
