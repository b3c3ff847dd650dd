// How sidco gets from the moments of magnitudes to its threshold. The moments are taken by the
// caller, on the host or on a device.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/compress/tail_fit.hpp"

namespace linerate::compress {

/// Fewer magnitudes than this say nothing about a distribution.
inline constexpr std::uint64_t kLeastForFit = 64;
/// The share that the first of several stages is fitted for (the paper's delta_1).
inline constexpr double kFirstRatio = 0.25;
/// From so many elements on, thresholds are fitted to a sample. It has one block of every stretch,
/// whole cache lines, at a hashed place. Regular places would meet the periods that rows and
/// channels give a tensor.
inline constexpr std::size_t kSampledFrom = 1 << 20, kStretch = 512, kSampledRun = 64;
/// If more than this part of a tensor is above a sample's threshold, the sample was not like the
/// tensor.
inline constexpr std::size_t kMostPicked = 8;  // 1 / kMostPicked

/// Most entries that are sent for k wanted.
constexpr std::int64_t sidco_capacity(std::int64_t k) { return (13 * k + 9) / 10; }
inline int sidco_most_stages(double density) {
  return static_cast<int>(std::ceil(std::log(density) / std::log(0.5)));
}

/// The moments of the magnitudes that reach a threshold, as their excess over the smallest of them.
struct TailFit {
  std::uint64_t count = 0;
  std::uint32_t smallest = 0, largest = 0;  // bits
  double mean_excess = 0, variance = 0;
};

/// The bits of the least magnitude above a threshold. The threshold is rounded to f32 first, so
/// that the last bit of a machine's logarithm hardly ever shows.
inline std::uint32_t sidco_bits_of(double threshold) {
  if (!std::isfinite(threshold)) return kNoMagnitude;
  return std::max(1u, bits_above(static_cast<float>(threshold)));
}

/// Finds the least magnitude to send, stage by stage. One fit over all magnitudes is bad far out in
/// the tail. So the first stage looks for the threshold of a quarter, and each later stage fits
/// only the tail of the one before. Several tensors can be searched at once, because the caller
/// takes the moments.
///
/// Example: a density of .01 in three stages. The first threshold is exceeded by .25 of the
/// magnitudes. The other two stages share the rest evenly: .2 of the tail each, and .25 * .2 * .2 =
/// .01.
class SidcoSearch {
 public:
  /// `positive` of n magnitudes are above 0 and have the moments x. A share `density` of the n is
  /// wanted.
  SidcoSearch(TailDistribution fit, const FitMoments& x, std::uint64_t positive, std::size_t n,
              double density, int wanted_stages)
      : fit_(fit) {
    // Magnitudes that differ by less than f32 shows fit no distribution.
    const bool all_equal = x.variance <= 1e-14 * x.mean * x.mean;
    if (positive < kLeastForFit || all_equal) return;
    const double d =
        std::min(1.0, density * static_cast<double>(n) / static_cast<double>(positive));
    const int stages = d >= kFirstRatio ? 1 : wanted_stages;
    ratio_ = std::pow(d / kFirstRatio, 1.0 / std::max(1, stages - 1));
    set(fitted_threshold(fit, x, stages == 1 ? d : kFirstRatio), stages - 1);
  }

  /// Bits of the least magnitude to send, or to fit the tail of; kNoMagnitude if none fits.
  std::uint32_t least() const { return least_; }
  bool is_over() const { return stages_left_ <= 0; }
  /// Takes in the moments of the magnitudes that reach least().
  void take(const TailFit& tail) {
    if (tail.count < 2) {
      stages_left_ = 0;
    } else if (tail.smallest == tail.largest) {
      set(std::numeric_limits<double>::infinity(), 0);
    } else {
      const double m = std::bit_cast<float>(tail.smallest);
      set(m + fitted_excess(fit_, {tail.mean_excess, tail.variance, 0}, ratio_), stages_left_ - 1);
    }
  }

 private:
  void set(double threshold, int stages_left) {
    least_ = sidco_bits_of(threshold);
    stages_left_ = least_ == kNoMagnitude ? 0 : stages_left;
  }

  TailDistribution fit_;
  double ratio_ = 1;
  std::uint32_t least_ = kNoMagnitude;
  int stages_left_ = 0;
};

}  // namespace linerate::compress
