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

/// The size that the fit needs most. The fit misses some size worst if it has not seen it. The
/// answer is the geometric middle of the wider gap next to that size. `sizes` ascend, at least
/// three with times.
///
/// Example: 1, 4 and 8 MiB are measured, and without 4 MiB the fit misses it by 30 %. The gap from
/// 1 to 4 MiB is the wider one, so 2 MiB is measured next.
///
/// A size is no candidate in these cases:
///
/// - Its error is below kAllowedError.
/// - Its error is within the doubt in the medians of it and of its neighbours: repeating helps
/// there.
/// - Both gaps next to it are narrower than a tenth of the size: a jump has been located.
std::optional<std::int64_t> next_size(Collective kind, int ranks,
                                      const std::vector<ProbedSize>& sizes);

}  // namespace linerate::calibrate
