// alpha + beta * S through samples with relative weights: the fit that every regime of a collective
// starts from.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// seconds(S) = alpha_s + beta_s_per_byte * S, both non-negative.
struct Line {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double squared_error = 0;  // sum of ((fit - T) / T)^2 over the samples it was fitted to

  double at(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Fits any contiguous run of samples in constant time: min sum ((T_i - alpha - beta S_i) / T_i)^2
/// over alpha, beta >= 0. Errors are relative, because small messages matter too. If 1 KiB takes 20
/// us and 64 MiB takes 60 ms, an error of 1 % at 64 MiB is 600 us. Ordinary least squares would fit
/// that, and might miss 1 KiB by a factor.
class RelativeLines {
 public:
  /// Samples with bytes > 0 and seconds > 0, ascending.
  explicit RelativeLines(std::span<const doc::CostSample> samples);

  /// The fit to samples[first, last), last > first. One sample gives a constant bandwidth through
  /// the origin.
  Line fit(std::size_t first, std::size_t last) const;

 private:
  // Prefix sums of the normal equations, u = 1/T, v = S/T: u^2, v^2, u*v, u, v.
  struct Sums {
    long double uu = 0, vv = 0, uv = 0, u = 0, v = 0;
  };
  std::vector<Sums> prefix_;
};

/// What the largest sizes add a byte, in seconds: the weighted median of the slopes through any two
/// of the largest eight. A slope weighs as much as its sizes lie apart (Sievers 1978; Theil 1950
/// and Sen 1968 without weights). A size that is off moves it little. 0 if there are fewer than two
/// sizes.
double sustained_s_per_byte(std::span<const doc::CostSample> samples);

// Finds where a library changed its algorithm: sizes -> runs of samples that one line explains, and
// the jumps between.

/// samples[first, last) belong together.
struct Run {
  std::size_t first = 0;
  std::size_t last = 0;
};

/// Between samples `after` and `after + 1` the time jumps: the lines fitted on either side disagree
/// there.
struct Switch {
  std::size_t after = 0;
  Line left, right;
};

/// The relative noise of one sample, at least 2 %. It is the lesser of two medians: of the
/// deviations from the join of the neighbours, and of the differences between such deviations.
/// Jumps spoil few values of either. A steady bend spoils only the first.
double noise_of(std::span<const doc::CostSample> samples);

// Turns samples of one collective into segments: a curve through all that no other contradicts.

/// By sample, whether it is an outlier: one that the sizes on either side contradict. `samples`
/// ascend.
std::vector<bool> find_outliers(std::span<const doc::CostSample> samples);

/// The samples that are no outliers, their regimes, and the curve through them.
struct Curve {
  explicit Curve(std::span<const doc::CostSample> samples);

  std::vector<doc::CostSample> kept;
  RelativeLines lines;
  std::vector<Run> runs;
  std::vector<Switch> switches;  // indices of `kept`
  /// Ascending, touching, from 0 to twice the largest size, cut at every size; low = high = 1. The
  /// first and the last one extrapolate with the slope of the nearest samples, never below 0.
  std::vector<doc::CostSegment> segments;
};

}  // namespace linerate::calibrate
