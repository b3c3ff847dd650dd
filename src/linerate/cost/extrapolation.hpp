// Tells people when a prediction goes beyond what was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

/// The note on a Workload whose times share out one total (doc::Workload::split_by_flops).
inline constexpr std::string_view kSplitByFlops =
    "When gradients get ready is not measured: the step time is shared out among layers by their "
    "FLOPs, backward taking twice forward.";

/// One sentence each for slow ranks that the job does not have, for ranks that share cores, and for
/// another rank count, another bandwidth and another latency than the Cluster's measurements of
/// all-reduce have, and which of a line's two rates a bandwidth is. The latter four are absent for
/// closed forms.
std::vector<std::string> extrapolation_notes(const CostModel& model, int ranks);

}  // namespace linerate::cost
