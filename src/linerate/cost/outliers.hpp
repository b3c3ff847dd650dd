// Tells people which measurements others contradict.
#pragma once

#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {

/// One sentence, or none: which measured sizes are outliers. What sizes, rank counts and
/// collectives next to one say of it is further off than tolerance_at(), and its price follows
/// them.
std::vector<std::string> outlier_notes(const CostModel& model);

}  // namespace linerate::cost
