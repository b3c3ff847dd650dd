// Decides which size of a collective to measure next: samples so far -> a size, or none. Measures
// nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/core/collective.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// One size of one collective with all its times so far.
struct ProbedSize {
  std::int64_t bytes = 0;
  double expected_s = 0;  // about what a call takes, while there are no times yet
  std::vector<double> seconds = {};
};

/// Median and 10th to 90th percentile of its times.
doc::CostSample sample_of(const ProbedSize& size);

/// The error that a size may have when the fit does not see it.
inline constexpr double kAllowedError = 0.10;

/// The size that the fit needs most: the geometric middle of the wider gap next to the size that
/// the fit misses worst without having seen it. None when
/// - every leave-one-out error is below kAllowedError,
/// - or is no more than the doubt in the medians (that of a size and of its neighbours): repeating
///   helps there, another size does not,
/// - or both gaps next to it are narrower than a tenth of the size: a jump has then been located.
/// `sizes` ascend, at least three with times.
std::optional<std::int64_t> next_size(Collective kind, int ranks,
                                      const std::vector<ProbedSize>& sizes);

}  // namespace linerate::calibrate
