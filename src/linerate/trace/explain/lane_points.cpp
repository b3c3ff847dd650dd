// Own time is what remains of a lane without its waits. A stretch of it is split twice: into work
// and idle time by what was recorded, and into phases of the step.
//
// Example. A wait ends at 10 ms and the next request is at 16 ms. Kernels ran from 11 to 14 ms, all
// in backward, and the optimizer began at 15 ms. Then the own time before the request is 6 ms.
// Backward has 3 ms of work and 2 ms of idle time, the optimizer has 1 ms of idle time.
#include "linerate/trace/explain/lane_points.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {
namespace {

/// Measures stretches of a rank's own time, one after the other. Stretches must ascend: two cursors
/// move through the busy spans and the phases, so that a whole lane takes one pass over both.
class OwnTimeMeter {
 public:
  OwnTimeMeter(const SpanSet& busy, const std::vector<PhaseSpan>& phases)
      : busy_(busy), phases_(phases) {}

  /// The own time from `from` to `to`. It advances to the next moment at which work or the phase
  /// changes, and adds the time up to there to one of the sums.
  OwnTime between(std::int64_t from, std::int64_t to) {
    OwnTime own;
    while (from < to) {
      while (b_ < busy_.size() && busy_[b_].end_ns <= from) ++b_;
      while (p_ < phases_.size() && phases_[p_].span.end_ns <= from) ++p_;
      std::int64_t until = to;
      const bool working = b_ < busy_.size() && busy_[b_].start_ns <= from;
      if (b_ < busy_.size())
        until = std::min(until, working ? busy_[b_].end_ns : busy_[b_].start_ns);
      const bool known = p_ < phases_.size() && phases_[p_].span.start_ns <= from;
      if (p_ < phases_.size())
        until = std::min(until, known ? phases_[p_].span.end_ns : phases_[p_].span.start_ns);
      const auto phase = to_index(known ? phases_[p_].phase : StepPhase::unknown);
      (working ? own.work : own.idle)[phase] += until - from;
      from = until;
    }
    return own;
  }

 private:
  const SpanSet& busy_;
  const std::vector<PhaseSpan>& phases_;
  std::size_t b_ = 0, p_ = 0;
};

/// A border at the begin of each step, and one at the end of each run of steps that follow each
/// other. Steps that touch share a border: StepWindow::to of the first is `from` of the second.
void add_borders(const RankActivity& rank, Lane& lane, std::vector<Timed>& points) {
  const auto border = [&](std::int64_t time) {
    lane.borders_ns.push_back(time);
    points.push_back({.block_ns = time, .resume_ns = time, .point = {.kind = PointKind::border}});
  };
  const std::vector<Span> windows = windows_of_steps(rank);
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    const Span& window = windows[i];
    if (lane.borders_ns.empty() || lane.borders_ns.back() != window.start_ns)
      border(window.start_ns);
    const std::size_t from = lane.borders_ns.size() - 1;
    border(window.end_ns);
    lane.steps.push_back({rank.steps[i].number, from, from + 1});
  }
}

/// Merges borders into the points, both by time. A border inside a wait has no place in own time,
/// so it follows the wait and says where in the wait it was. A border at 5 ms is at a quarter of a
/// wait from 4 to 8 ms. If a replay shortens the wait to 2 ms, the border stays at a quarter of it.
std::vector<Timed> with_borders(const std::vector<Timed>& points,
                                const std::vector<Timed>& borders) {
  std::vector<Timed> all;
  std::size_t next = 0;
  const auto take = [&](const Timed* wait, std::int64_t until) {
    for (; next < borders.size() && borders[next].block_ns < until; ++next) {
      Timed b = borders[next];
      if (wait != nullptr) {
        b.point.within = static_cast<double>(b.block_ns - wait->block_ns) /
                         static_cast<double>(wait->resume_ns - wait->block_ns);
        b.block_ns = b.resume_ns = wait->resume_ns;
      }
      all.push_back(b);
    }
  };
  for (const Timed& p : points) {
    take(nullptr, p.block_ns);
    all.push_back(p);
    take(&p, p.resume_ns);
  }
  take(nullptr, INT64_MAX);
  return all;
}

}  // namespace

void set_points(const std::vector<Timed>& points, const RankActivity& rank, const SpanSet& busy,
                Lane& lane) {
  std::vector<Timed> borders;
  add_borders(rank, lane, borders);
  const std::vector<Timed> all = with_borders(points, borders);
  if (all.empty()) return;
  OwnTimeMeter meter(busy, rank.phases);
  const SpanSet exchange_idle = difference_of(union_of(rank.exchange_calls), busy);
  const SpanSet exchange = union_of(union_of(rank.exchange_work), exchange_idle);
  std::int64_t at = all.front().block_ns;
  lane.start_ns = at;
  for (const Timed& t : all) {
    lane.points.push_back(t.point);
    lane.points.back().before = meter.between(at, t.block_ns);
    if (at < t.block_ns) {
      OwnTime& own = lane.points.back().before;
      own.exchange = length_of(clipped(exchange, {at, t.block_ns}));
      own.exchange_idle = length_of(clipped(exchange_idle, {at, t.block_ns}));
    }
    at = std::max(at, t.resume_ns);
  }
}

}  // namespace linerate::trace
