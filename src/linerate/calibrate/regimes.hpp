// Finds where a library changed its algorithm: sizes -> runs of samples that one line explains, and
// the jumps between.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "linerate/calibrate/relative_line.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

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

/// The cut into runs with the least sum of squared relative errors / noise^2 + penalty for each
/// run. It is the exact optimum, by dynamic programming over the breakpoints: O(n^2) with
/// constant-time fits. A run has at least three samples, because two would fit any noise exactly.
/// The penalty is 4 ln n: a Bayesian information criterion over alpha, beta and the breakpoint,
/// rounded up. Source: Bellman and Roth 1969, "Curve fitting by segmented straight lines".
std::vector<Run> find_runs(std::span<const doc::CostSample> samples, const RelativeLines& lines,
                           double noise);

/// Boundaries of runs at which the time jumps. A line goes through at most four samples on either
/// side. In the middle of the gap the two lines differ by more than 10 % and more than twice the
/// noise. A slower bend is no switch: it gets more runs, and no wider interval.
std::vector<Switch> find_switches(std::span<const doc::CostSample> samples,
                                  const RelativeLines& lines, std::span<const Run> runs,
                                  double noise);

}  // namespace linerate::calibrate
