// Timelines as sections of a page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"
#include "linerate/report/page.hpp"
#include "linerate/trace/explain/explanation.hpp"

namespace linerate::report {

struct NamedTimeline {
  std::string file;
  std::string label;  // short: head of its column where the time goes
  doc::Timeline timeline;
  /// Of the traces that it was imported from, which say more than it does; absent: its own.
  std::optional<trace::Explanation> explanation = {};
};

/// A section for each set of Timelines that share workload, strategy and rank count (predicted
/// first, then the measured ones): such a set is one chart over one time axis.
std::vector<Section> sections_of(const std::vector<NamedTimeline>& timelines);

}  // namespace linerate::report
