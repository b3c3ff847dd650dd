// A Timeline that a page shows.
#pragma once

#include <optional>
#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/explain/explanation.hpp"

namespace linerate::report {

struct NamedTimeline {
  std::string file;
  std::string label;  // short: head of its column where the time goes
  doc::Timeline timeline;
  /// Of the traces that it was imported from, which say more than it does; absent: its own.
  std::optional<trace::Explanation> explanation = {};
};

}  // namespace linerate::report
