// From when factors were computed in a step to what planners ask for. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/replan/curvature_profile.hpp"
#include "linerate/torch_adapter/kfac/collector.hpp"

namespace linerate::torch_adapter {

/// Layer by layer in the order of their first uses: a pass lasts from the end of a layer's factor A
/// to the beginning of the next one's, the last until the first gradient of an output.
replan::CurvatureTimes curvature_times(const std::vector<Collector::Times>& times,
                                       std::vector<double> inverse_s);

/// What factors G that began in [from_ns, until_ns) took, in seconds.
double factors_between_s(const std::vector<Collector::Times>& times, std::int64_t from_ns,
                         std::int64_t until_ns);

}  // namespace linerate::torch_adapter
