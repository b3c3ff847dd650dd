// Tells people which measurements others contradict.
#pragma once

#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

/// One sentence, or none: which measured sizes are outliers. An outlier is further than
/// tolerance_at() from its price, which follows the sizes, rank counts and collectives next to it.
std::vector<std::string> outlier_notes(const CostModel& model);

}  // namespace linerate::cost
