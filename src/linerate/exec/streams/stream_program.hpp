// A Plan for the streams of one rank: what is known of it before the first step.
#pragma once

#include <memory>
#include <vector>

#include "linerate/exec/streams/lane_streams.hpp"
#include "linerate/exec/streams/payload_uses.hpp"

namespace linerate::exec {

/// Whether something is so of each task, by variant.
using TaskMarks = std::vector<std::vector<bool>>;

/// An edge from a step into one of this variant.
struct EdgeFromBefore {
  std::uint32_t to = 0, from = 0;  // tasks of the step and of the one before
  std::int32_t variant = 0;        // of the one before
};

struct StreamProgram {
  std::shared_ptr<const doc::Plan> plan;
  std::int32_t rank = 0;
  LaneStreams lanes;
  PayloadUses payloads;
  std::vector<std::vector<EdgeFromBefore>> from_before;  // by variant, in the order of `to`
  /// The tasks whose end gets an event of its own. A stream or the host waits for exactly that end,
  /// if tasks are enqueued in the Plan's order.
  TaskMarks has_event;
};

}  // namespace linerate::exec
