// Derives the times that planners need from when factors were computed. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/replan/curvature_profile.hpp"
#include "linerate/torch_adapter/step_report.hpp"

namespace linerate::torch_adapter {

/// Layer by layer in the order of their first uses: a pass lasts from the end of a layer's factor A
/// to the beginning of the next one's, the last until the first gradient of an output. `factors`:
/// a step's, of so many blocks.
replan::CurvatureTimes curvature_times(std::span<const FactorSpan> factors, std::size_t blocks,
                                       std::vector<double> inverse_s);

/// The seconds that factors computed in [from_ns, until_ns) took.
double factors_between_s(std::span<const FactorSpan> factors, std::int64_t from_ns,
                         std::int64_t until_ns);

}  // namespace linerate::torch_adapter
