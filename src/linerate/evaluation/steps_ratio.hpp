// The steps-to-target ratio: one rule for results files of either form and for evaluations.
#pragma once

#include <span>

#include "linerate/doc/bounded.hpp"

namespace linerate::evaluation {

/// The ratio of the medians over runs that reached the target. The interval reaches from the least
/// to the greatest ratio of any pair of runs; absent with one run of each, which has no spread.
/// Neither may be empty.
doc::Bounded steps_ratio(std::span<const double> steps, std::span<const double> uncompressed);

}  // namespace linerate::evaluation
