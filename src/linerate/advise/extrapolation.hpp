// Says for people where a prediction leaves what was measured.
#pragma once

#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"

namespace linerate::advise {

/// One sentence each for another rank count and another bandwidth than the Cluster's measurements
/// of all-reduce have. Empty where they cover the question, and for closed forms.
std::vector<std::string> extrapolation_notes(const cost::CostModel& model, int ranks);

}  // namespace linerate::advise
