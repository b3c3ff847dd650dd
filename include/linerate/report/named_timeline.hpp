// A Timeline that a page shows.
#pragma once

#include <optional>
#include <string>

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/explain/explanation.hpp"

namespace linerate::report {

/// One of those that a page shows.
struct NamedTimeline {
  std::string file;        // that it was read from; empty: none
  std::string label;       // short: head of its column where the time goes
  doc::Timeline timeline;  // the tasks
  /// Of the traces that it was imported from, which say more than it does; absent: its own.
  std::optional<trace::Explanation> explanation = {};
};

}  // namespace linerate::report
