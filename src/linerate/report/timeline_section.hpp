// Timelines as sections of a page.
#pragma once

#include <vector>

#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

/// A section for each set of Timelines that share workload, strategy and rank count (predicted
/// first, then the measured ones): such a set is one chart over one time axis.
std::vector<Section> sections_of(const std::vector<NamedTimeline>& timelines);

/// Of the traces that it was imported from, else of the Timeline.
[[nodiscard]] trace::Explanation explanation_of(const NamedTimeline& timeline);

/// Whether the planner simulated it.
[[nodiscard]] bool is_predicted(const doc::Timeline& timeline);

}  // namespace linerate::report
