// A Timeline that a page shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"
#include "linerate/explain/explanation.hpp"

namespace linerate::report {

/// One of those that a page shows.
struct NamedTimeline {
  std::string file;        // that it was read from; empty: none
  std::string label;       // short: head of its column where the time goes
  doc::Timeline timeline;  // the tasks
  /// Of the traces that it was imported from, which say more than it does; absent: its own.
  std::optional<trace::Explanation> explanation = {};
};

// The losses of a run that a page shows.

/// The loss of every step of a run: what `train --losses` writes.
struct NamedLosses {
  std::string label;            // the file's stem; that of a Timeline if both are of one run
  std::int64_t first_step = 0;  // whose loss is the first
  std::vector<double> values;   // [steps]
};

}  // namespace linerate::report
