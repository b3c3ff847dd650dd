// The replay works as follows. Each lane walks along its points and adds up own time. At an issue
// it tells the collective when its part was asked for. At a wait it stops until its part has an
// end. Then it goes on at that end or at its own clock, whichever is later. A joint collective ends
// on all lanes as soon as the last part can begin; any other part ends by itself.
//
// No queue of events is needed. An end depends only on issue times, which are fixed once the lanes
// have passed them, so lanes may run in any order. run() lets each lane go as far as it can, again
// and again, until none moves. Every point is passed once. A lane that still stands before its end
// then waits in a circle with others, and the trace has no replay.
//
// Example with three lanes. Each has one issue and one wait; data moves for 4 ms from the last
// start.
//
//   lane   own time   issue   wait ends   wait
//   0      1 ms       1 ms    7 ms        6 ms
//   1      3 ms       3 ms    7 ms        4 ms
//   2      2 ms       2 ms    7 ms        5 ms
//
// With instant_network the waits end at 3 ms: data takes no time, and lanes 0 and 2 wait for lane
// 1. With 1 ms cut from lane 1 they end at 6 ms. With nothing_waits the lanes end at 1, 3 and 2 ms.
#include "linerate/trace/explain/replay.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// Where a part stands. `end_ns` counts once `done` is set; both never change again.
struct PartState {
  std::int64_t issued_ns = 0, end_ns = 0;
  bool issued = false, done = false;
};

/// Where a lane stands: its clock, and the position `at` of the next point to pass.
struct LaneState {
  std::int64_t clock_ns = 0;
  std::int64_t wait_from_ns = 0, wait_to_ns = 0;  // the last wait
  std::size_t at = 0;
  std::vector<std::int64_t> borders_ns;
};

class Replay {
 public:
  Replay(const Program& program, const Change& change) : p_(program), change_(change) {
    for (const ProgramCollective& c : p_.collectives) parts_.emplace_back(c.parts.size());
    for (const Lane& lane : p_.lanes) {
      lanes_.push_back({.clock_ns = lane.start_ns, .borders_ns = {}});
      held_.emplace_back(lane.parts.size());
      behind_.emplace_back();
      std::int32_t last = -1;  // of gradients
      for (std::size_t i = 0; i < lane.parts.size(); ++i) {
        std::int32_t behind = part(lane.parts[i]).behind;
        if (change_.waits_for_last && carries_gradients_here(lane.parts[i].collective)) {
          behind = std::max(behind, last);
          last = static_cast<std::int32_t>(i);
        }
        behind_.back().push_back(behind);
        if (behind >= 0) held_.back()[to_index(behind)].push_back(lane.parts[i].collective);
      }
      early_.push_back(early_waits(lane));
    }
  }

  std::optional<std::vector<std::vector<std::int64_t>>> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t l = 0; l < lanes_.size(); ++l) moved |= advance(l);
    }
    std::vector<std::vector<std::int64_t>> borders;
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      if (lanes_[l].at < p_.lanes[l].points.size()) return std::nullopt;
      borders.push_back(std::move(lanes_[l].borders_ns));
    }
    return borders;
  }

 private:
  const Part& part(const PartOf& of) const {
    return p_.collectives[to_index(of.collective)].parts[to_index(of.part)];
  }
  PartState& state(const PartOf& of) { return parts_[to_index(of.collective)][to_index(of.part)]; }

  bool carries_gradients_here(std::int32_t collective) const {
    return p_.collectives[to_index(collective)].gradients;
  }

  /// By point of the lane, under Change::waits_for_last: a wait for gradients that is followed by a
  /// request for more gradients in the same step. A hook may wait for each bucket. DDP alone waits
  /// once, after the last request. So the early waits are passed without waiting.
  std::vector<bool> early_waits(const Lane& lane) const {
    std::vector<bool> early(lane.points.size(), false);
    if (!change_.waits_for_last) return early;
    std::int64_t asks_in = -1;  // step of the next request
    for (std::size_t i = lane.points.size(); i-- > 0;) {
      const Point& point = lane.points[i];
      if (point.kind == PointKind::border || !carries_gradients_here(point.collective)) continue;
      const std::int64_t step = p_.step_of[to_index(point.collective)];
      if (point.kind == PointKind::issue) asks_in = step;
      early[i] = point.kind == PointKind::wait && step >= 0 && asks_in == step;
    }
    return early;
  }

  /// Moves a lane on until it must wait for an end that is not known yet. False: it did not move.
  bool advance(std::size_t l) {
    LaneState& lane = lanes_[l];
    const std::vector<Point>& points = p_.lanes[l].points;
    const std::size_t began = lane.at;
    for (; lane.at < points.size(); ++lane.at) {
      const Point& point = points[lane.at];
      const bool waits =
          point.kind == PointKind::wait && !change_.nothing_waits && !early_[l][lane.at];
      if (waits && !state({point.collective, point.part}).done) break;
      lane.clock_ns += own_time(l, lane.at);
      if (point.kind == PointKind::issue) issue({point.collective, point.part}, lane.clock_ns);
      if (point.kind == PointKind::wait) lane.wait_from_ns = lane.wait_to_ns = lane.clock_ns;
      if (waits) {
        lane.clock_ns = std::max(lane.clock_ns, state({point.collective, point.part}).end_ns);
        lane.wait_to_ns = lane.clock_ns;
      }
      if (point.kind == PointKind::border) lane.borders_ns.push_back(border_of(lane, point));
    }
    return lane.at > began;
  }

  std::int64_t own_time(std::size_t lane, std::size_t point) const {
    const std::int64_t all = p_.lanes[lane].points[point].before.total_ns();
    return change_.cuts_ns.empty() ? all : all - change_.cuts_ns[lane][point];
  }

  /// The time of a border; inside a wait, in proportion to how long the wait takes now.
  static std::int64_t border_of(const LaneState& lane, const Point& border) {
    if (border.within >= 1) return lane.clock_ns;
    const auto waited = static_cast<double>(lane.wait_to_ns - lane.wait_from_ns);
    return lane.wait_from_ns + std::llround(border.within * waited);
  }

  /// Records a request, and ends what can end by it. An end may release parts of the lane that it
  /// held up, and these may complete other collectives. `open` lists the collectives that have to
  /// be looked at.
  void issue(const PartOf& of, std::int64_t time) {
    state(of).issued_ns = time;
    state(of).issued = true;
    std::vector<std::int32_t> open = {of.collective};
    while (!open.empty()) {
      const std::int32_t c = open.back();
      open.pop_back();
      try_to_end(c, open);
    }
  }

  std::int32_t behind_of(const Part& part) const {
    return behind_[to_index(part.lane)][to_index(part.place)];
  }
  /// Asked for, and the part that must end first has ended.
  bool can_begin(const Part& part, const PartState& s) {
    const std::int32_t behind = behind_of(part);
    return s.issued && (behind < 0 || state(lane_part(part.lane, behind)).done);
  }
  PartOf lane_part(std::int32_t lane, std::int32_t index) const {
    return p_.lanes[to_index(lane)].parts[to_index(index)];
  }
  /// The later of request and release, and the recorded lag after it; requires can_begin().
  std::int64_t begin_of(const Part& part, const PartState& s) {
    std::int64_t time = s.issued_ns;
    const std::int32_t behind = behind_of(part);
    if (behind >= 0) time = std::max(time, state(lane_part(part.lane, behind)).end_ns);
    return time + part.lag_ns;
  }

  std::int64_t moving_ns(const ProgramCollective& c, const Part& part) const {
    if (change_.transfer_factor == 1 || !c.gradients) return part.after_ns;
    return std::llround(change_.transfer_factor * static_cast<double>(part.after_ns));
  }

  /// Ends a joint collective if all parts can begin, else nothing of it. Of other collectives, ends
  /// each part that can begin. Appends to `open` what the ended parts held up.
  void try_to_end(std::int32_t index, std::vector<std::int32_t>& open) {
    const ProgramCollective& c = p_.collectives[to_index(index)];
    std::vector<PartState>& parts = parts_[to_index(index)];
    std::int64_t last = INT64_MIN;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (can_begin(c.parts[i], parts[i]))
        last = std::max(last, begin_of(c.parts[i], parts[i]));
      else if (c.joint)
        return;
    }
    const bool instant =
        change_.instant_network || (change_.instant_unmatched && !c.joint && c.synchronises);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].done || !can_begin(c.parts[i], parts[i])) continue;
      const std::int64_t began = c.joint ? last : begin_of(c.parts[i], parts[i]);
      parts[i].end_ns = began + (instant ? 0 : moving_ns(c, c.parts[i]));
      parts[i].done = true;
      const std::vector<std::int32_t>& held =
          held_[to_index(c.parts[i].lane)][to_index(c.parts[i].place)];
      open.insert(open.end(), held.begin(), held.end());
    }
  }

  const Program& p_;
  const Change& change_;
  std::vector<std::vector<PartState>> parts_;
  std::vector<LaneState> lanes_;
  std::vector<std::vector<std::vector<std::int32_t>>> held_;  // by lane and part: collectives
  std::vector<std::vector<std::int32_t>> behind_;  // by lane and part: what must end first
  std::vector<std::vector<bool>> early_;           // by lane and point
};

}  // namespace

std::optional<std::vector<std::vector<std::int64_t>>> replay(const Program& program,
                                                             const Change& change) {
  return Replay(program, change).run();
}

}  // namespace linerate::trace
