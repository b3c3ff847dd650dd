// One training step as bars over time: a row per rank and resource, predicted and measured below
// each other.
#pragma once

#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"

namespace linerate::report {

/// A bar of the chart. Several short events of one kind that would touch on paper are one bar.
struct Bar {
  doc::TaskKind kind = doc::TaskKind::host;
  double start_s = 0, end_s = 0;  // since the start of the window
  std::string label;              // empty for several events together
  int events = 1;
};

/// The bars of one rank and resource; lanes hold what overlaps in time (streams of an imported
/// trace).
struct Row {
  int rank = 0;
  doc::Resource resource = doc::Resource::host;
  std::vector<std::vector<Bar>> lanes;
};

/// One Timeline's part of the chart.
struct TimelineGroup {
  std::string title;  // "predicted: ddp, 2 ranks, step 3 of 20, 12.4 ms"
  double length_s = 0;
  std::vector<Row> rows;
};

struct TimelineChart {
  std::string name;  // for screen readers
  std::vector<TimelineGroup> groups;
};

struct TimelineOptions {
  int most_ranks = 4;  // the slowest ranks of the step are shown
  int most_lanes = 3;  // what overlaps beyond that is drawn over the last lane
  // share of the window: shorter gaps between bars of one kind are closed
  double resolution = 1.0 / 1500;
};

/// Picks the step of median duration (longest rank counts) and lays its events out. A Timeline
/// without steps is shown whole. No event: a group without rows.
TimelineGroup group_of(const doc::Timeline& timeline, const TimelineOptions& options = {});

}  // namespace linerate::report
