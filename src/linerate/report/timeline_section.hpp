// Timelines as sections of a page.
#pragma once

#include <vector>

#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

/// A section for each set of Timelines that share workload, strategy and rank count (predicted
/// first, then the measured ones): such a set is one chart over one time axis.
std::vector<Section> sections_of(const std::vector<NamedTimeline>& timelines);

}  // namespace linerate::report
