// Turns samples of one collective into segments: a curve through all that no other contradicts.
#pragma once

#include <span>
#include <vector>

#include "linerate/calibrate/regimes.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

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
