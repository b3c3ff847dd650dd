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

/// Fills in steps, borders, points and start of a lane. `points` are ordered by time; the borders
/// of the rank's steps are added among them. Each point gets the own time since the point before
/// it. The lane starts at the first point, on the rank's own clock.
void set_points(const std::vector<Timed>& points, const RankActivity& rank, const SpanSet& busy,
                Lane& lane);

}  // namespace linerate::trace
