// Tells people when a prediction goes beyond what was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

/// The note on a Workload whose times share out one total (doc::Workload::split_by_flops).
inline constexpr std::string_view kSplitByFlops =
    "It was not measured when gradients get ready. The step time is shared out among layers by "
    "their FLOPs, and backward takes twice as long as forward.";

/// A sentence each for slow ranks that the job does not have and for ranks that share cores.
/// Besides, if all-reduces were measured: for another rank count, bandwidth or latency than was
/// measured, and for which of a line's two rates a bandwidth is.
std::vector<std::string> extrapolation_notes(const CostModel& model, int ranks);

}  // namespace linerate::cost
