// Derives the times that planners need from when factors were computed. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/replan/curvature_profile.hpp"
#include "linerate/torch_adapter/step_report.hpp"

namespace linerate::torch_adapter {

/// The forward, factor and inverse times of each layer, from when its factors were computed in a
/// step of so many blocks.
///
/// A layer's forward pass lasts from the end of its factor A to the beginning of the next layer's
/// A. The last layer's lasts until the first gradient of an output. For example A of layer 1 is
/// computed from 0 to 2 ms, and A of layer 2 from 7 to 8 ms. The first G begins at 12 ms. Then the
/// forward passes take 5 and 4 ms.
replan::CurvatureTimes curvature_times(std::span<const FactorSpan> factors, std::size_t blocks,
                                       std::vector<double> inverse_s);

/// The seconds that factors computed in [from_ns, until_ns) took.
double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns);

}  // namespace linerate::torch_adapter
