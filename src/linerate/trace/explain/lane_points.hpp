// Private: the points of a lane in order, and a rank's own time between them.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/explain/program.hpp"

namespace linerate::trace {

/// A point with its times, before the time between points is measured.
struct Timed {
  std::int64_t block_ns = 0, resume_ns = 0;
  Point point;
};

/// Steps, borders and points of a lane: `points`, by time, and the borders of the rank's steps
/// among them, each with what the rank did since the one before it. The lane starts, on the rank's
/// own clock, at the first of them.
void set_points(const std::vector<Timed>& points, const RankActivity& rank, const SpanSet& busy,
                Lane& lane);

}  // namespace linerate::trace
