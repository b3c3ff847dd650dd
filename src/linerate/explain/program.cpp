#include "linerate/explain/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <numeric>
#include <set>

#include "linerate/core/index.hpp"

namespace linerate::trace {

std::int64_t OwnTime::idle_ns() const {
  return std::accumulate(idle.begin(), idle.end(), std::int64_t{0});
}
std::int64_t OwnTime::total_ns() const {
  return idle_ns() + std::accumulate(work.begin(), work.end(), std::int64_t{0});
}
OwnTime& OwnTime::operator+=(const OwnTime& other) {
  for (std::size_t i = 0; i < kPhases; ++i) work[i] += other.work[i], idle[i] += other.idle[i];
  return *this;
}

// Each communication gets a key, and those with equal keys are the members of one collective. The
// key is the best identity that the trace offers: a sequence number, an id, or a place in a count.
//
// Example of counting. In step 7, ranks 0, 1 and 2 each issue two all-reduces of group "dp", of 4
// MiB and then of 1 MiB. The first ones get the key (dp, step 7, 0) on every rank, the second ones
// (dp, step 7, 1). If rank 2 skipped the first one, its 1 MiB would have the key of the others' 4
// MiB. The sizes differ, so matching of "dp" stops there and everything later stays unmatched.
//
// Counting starts again in each step, so a lost record that nothing contradicts shifts the rest of
// its step only.
// breakdown.cpp calls this first; nearly every other part of explain needs the result.

namespace {

/// What members of one collective have in common.
struct Key {
  std::int32_t group = -1;
  int kind = 0;              // of the numbering; the operation if no group is known
  std::int64_t step = -1;    // of the step, in which counting starts again
  std::uint64_t number = 0;  // sequence number or communication id
  std::int64_t kth = 0;      // of these on its rank; negative: so many before its first step
  auto operator<=>(const Key&) const = default;
};
enum Kind : int { kBySequence, kById, kByCount, kByCountOfOperation };

/// A rank takes part in some sends and receives of its group and not in others. So they cannot be
/// counted, and their sequence numbers are those of a pair.
bool is_point_to_point(CommOp op) {
  return op == CommOp::send || op == CommOp::recv || op == CommOp::send_recv;
}

/// Without `kth`: communications of one rank may share everything else, and are counted then.
Key key_of(const Communication& c, const RankActivity& rank) {
  if (c.sequence >= 0) return {c.group, kBySequence, -1, static_cast<std::uint64_t>(c.sequence)};
  if (c.comms_id != 0) return {.group = c.group, .kind = kById, .number = c.comms_id};
  const std::int64_t step = c.step >= 0 ? rank.steps[to_index(c.step)].number : -1;
  const int kind = c.group < 0 ? kByCountOfOperation + static_cast<int>(c.op) : kByCount;
  return {.group = c.group, .kind = kind, .step = step};
}

/// How many come before the first communication of a marked step; of a rank without steps none.
std::size_t before_steps(const RankActivity& rank, const std::vector<std::size_t>& order) {
  if (rank.steps.empty()) return 0;
  const auto first = std::ranges::find_if(
      order, [&rank](std::size_t i) { return rank.communications[i].step >= 0; });
  return first == order.end() ? 0 : to_index(first - order.begin());
}

/// The communications of all ranks by key. Sends and receives go to `alone`, because they have no
/// key. Members are in order of rank, as ranks are visited in order.
///
/// A profiler starts in the middle of something, and not on all ranks at the same call. Rank 0 may
/// have recorded three all-reduces before its first step and rank 1 two. The first step is common
/// to both, so these are counted backwards from it. Rank 0's get -3, -2 and -1, rank 1's get -2 and
/// -1. The two pairs match, and rank 0's oldest stays without a partner.
std::map<Key, std::vector<Member>> keyed(const Job& job, std::vector<Member>& alone) {
  std::map<Key, std::vector<Member>> all;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankActivity& rank = job.ranks[r];
    std::map<Key, std::int64_t> counted;
    const std::vector<std::size_t> order = in_order_of_issue(rank);
    const std::size_t early = before_steps(rank, order);
    // Early ones count back from the first step, whose number is part of the key.
    const auto key_at = [&](std::size_t k) {
      Key key = key_of(rank.communications[order[k]], rank);
      if (k < early && key.kind >= kByCount)
        key.number = static_cast<std::uint64_t>(rank.steps.front().number);
      return key;
    };
    std::map<Key, std::int64_t> left;
    for (std::size_t k = 0; k < early; ++k) ++left[key_at(k)];
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t i = order[k];
      const Member member{static_cast<std::int32_t>(r), static_cast<std::int32_t>(i)};
      if (is_point_to_point(rank.communications[i].op)) {
        alone.push_back(member);
        continue;
      }
      Key key = key_at(k);
      key.kth = k < early && key.kind >= kByCount ? -left[key]-- : counted[key]++;
      all[key].push_back(member);
    }
  }
  return all;
}

/// What one rank does not state cannot contradict another. Sizes may differ between ranks in uneven
/// all-to-alls, and if only the root has the whole.
bool agree(const Job& job, const std::vector<Member>& members) {
  CommOp op = CommOp::unknown;
  std::int64_t bytes = -1;
  for (const Member& m : members) {
    const Communication& c = communication_of(job, m);
    if (c.op != CommOp::unknown) {
      if (op != CommOp::unknown && op != c.op) return false;
      op = c.op;
    }
    if (c.bytes >= 0 && c.op != CommOp::all_to_all && c.op != CommOp::gather &&
        c.op != CommOp::scatter) {
      if (bytes >= 0 && bytes != c.bytes) return false;
      bytes = c.bytes;
    }
  }
  return true;
}

std::string place_of(const Key& key) {
  if (key.kind == kBySequence) return fmt::format("sequence number {}", key.number);
  if (key.kind == kById) return fmt::format("communication {}", key.number);
  return fmt::format("collective {}{}", key.kth,
                     key.step >= 0 ? fmt::format(" of step {}", key.step) : "");
}

/// The upper median; `values` are not empty.
std::int64_t median_of(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Offsets that bring every rank to the first rank's clock.
///
/// No rank leaves an all-reduce before the last one has arrived, so all leave at nearly the same
/// moment. Rank 0 records the end of one at 10 ms, rank 1 at 110.2 ms. By this collective rank 1's
/// clock is 100.2 ms ahead. Scheduling adds noise to each end, and the median over all collectives
/// removes it. Starts would be no help: an early rank starts, and waits.
///
/// A rank that shares no synchronising collective with the first rank keeps the offset 0. The
/// residual is the median of what the ends still differ by, and tells how far to trust an offset.
void align_clocks(const Job& job, MatchResult& result) {
  const std::size_t n = job.ranks.size();
  result.clock_offset_ns.assign(n, 0);
  std::vector<std::vector<std::int64_t>> ahead(n);
  for (const Matched& m : result.collectives) {
    if (m.members.size() < 2 || m.members.front().rank != 0 ||
        !synchronises(communication_of(job, m.members.front()).op))
      continue;
    const std::int64_t end = communication_of(job, m.members.front()).span.end_ns;
    for (const Member& other : m.members)
      ahead[to_index(other.rank)].push_back(end - communication_of(job, other).span.end_ns);
  }
  std::vector<std::int64_t> residuals;
  for (std::size_t r = 1; r < n; ++r) {
    if (ahead[r].empty()) continue;
    result.clock_offset_ns[r] = median_of(ahead[r]);
    for (const std::int64_t d : ahead[r])
      residuals.push_back(std::abs(d - result.clock_offset_ns[r]));
  }
  if (!residuals.empty()) result.clock_residual_ns = median_of(residuals);
}

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

/// Where a part stands. `end_ns` counts once `done` is set; both never change again.
struct PartState {
  std::int64_t issued_ns = 0, end_ns = 0;
  bool issued = false, done = false;
  std::vector<std::int32_t> held;  // collectives with a part that must wait for its end
};

/// Where a lane stands: its clock, and the position `at` of the next point to pass.
struct LaneState {
  std::vector<PartState> parts;
  std::int64_t clock_ns = 0;
  std::int64_t wait_from_ns = 0, wait_to_ns = 0;  // the last wait
  std::size_t at = 0;
  std::vector<std::int64_t> borders_ns;
};

class Replay {
 public:
  Replay(const Program& program, const Change& change) : p_(program), change_(change) {
    for (const Lane& lane : p_.lanes) {
      LaneState& state = lanes_.emplace_back();
      state.clock_ns = lane.start_ns;
      state.parts.resize(lane.parts.size());
      for (const Part& part : lane.parts)
        if (part.behind >= 0) state.parts[to_index(part.behind)].held.push_back(part.collective);
    }
  }

  std::optional<Borders> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t l = 0; l < lanes_.size(); ++l) moved |= advance(l);
    }
    Borders borders;
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      if (lanes_[l].at < p_.lanes[l].points.size()) return std::nullopt;
      borders.push_back(std::move(lanes_[l].borders_ns));
    }
    return borders;
  }

 private:
  /// Moves a lane on until it must wait for an end that is not known yet. False: it did not move.
  bool advance(std::size_t l) {
    LaneState& lane = lanes_[l];
    const std::vector<Point>& points = p_.lanes[l].points;
    const std::size_t began = lane.at;
    for (; lane.at < points.size(); ++lane.at) {
      const Point& point = points[lane.at];
      const bool waits = point.kind == PointKind::wait && !change_.nothing_waits;
      if (waits && !lane.parts[to_index(point.part)].done) break;
      lane.clock_ns += own_time(l, lane.at);
      if (point.kind == PointKind::issue) issue(l, point);
      if (point.kind == PointKind::wait) lane.wait_from_ns = lane.wait_to_ns = lane.clock_ns;
      if (waits) {
        lane.clock_ns = std::max(lane.clock_ns, lane.parts[to_index(point.part)].end_ns);
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
  void issue(std::size_t lane, const Point& point) {
    PartState& part = lanes_[lane].parts[to_index(point.part)];
    part.issued_ns = lanes_[lane].clock_ns;
    part.issued = true;
    std::vector<std::size_t> open = {p_.lanes[lane].collective_of(point)};
    while (!open.empty()) {
      const ProgramCollective& c = p_.collectives[open.back()];
      open.pop_back();
      try_to_end(c, open);
    }
  }

  const Part& part_of(const Member& m) const {
    return p_.lanes[to_index(m.rank)].parts[to_index(m.index)];
  }

  /// The later of request and release, and the recorded lag after it. Absent: it was not asked for,
  /// or the part that must end first has not ended.
  std::optional<std::int64_t> begin_of(const Member& m) const {
    const std::vector<PartState>& parts = lanes_[to_index(m.rank)].parts;
    const Part& part = part_of(m);
    const PartState& state = parts[to_index(m.index)];
    if (!state.issued) return std::nullopt;
    if (part.behind < 0) return state.issued_ns + part.lag_ns;
    const PartState& before = parts[to_index(part.behind)];
    if (!before.done) return std::nullopt;
    return std::max(state.issued_ns, before.end_ns) + part.lag_ns;
  }

  /// Ends a joint collective if all parts can begin, else nothing of it. Of other collectives, ends
  /// each part that can begin. Appends to `open` what the ended parts held up.
  void try_to_end(const ProgramCollective& c, std::vector<std::size_t>& open) {
    std::int64_t last = INT64_MIN;
    for (const Member& m : c.members)
      if (const auto begin = begin_of(m))
        last = std::max(last, *begin);
      else if (c.joint)
        return;
    const bool instant =
        change_.instant_network || (change_.instant_unmatched && !c.joint && c.synchronises);
    for (const Member& m : c.members) {
      PartState& state = lanes_[to_index(m.rank)].parts[to_index(m.index)];
      const auto begin = begin_of(m);
      if (state.done || !begin) continue;
      state.end_ns = (c.joint ? last : *begin) + (instant ? 0 : part_of(m).after_ns);
      state.done = true;
      for (const std::int32_t held : state.held) open.push_back(to_index(held));
    }
  }

  const Program& p_;
  const Change& change_;
  std::vector<LaneState> lanes_;
};

}  // namespace

/// Keys are visited in order, so a group that stops matching stops at its first disagreement.
/// Members of a stopped group become collectives of one member each. A collective is complete if it
/// has as many members as its group, or else the job, has ranks.
MatchResult match_collectives(const Job& job) {
  MatchResult result;
  std::vector<Member> alone;
  std::set<std::int32_t> stopped;
  for (auto& [key, members] : keyed(job, alone)) {
    int group_size = -1;
    for (const Member& m : members)
      group_size = std::max(group_size, communication_of(job, m).group_size);
    const bool too_many = group_size > 0 && members.size() > to_index(group_size);
    if (members.size() > 1 && !stopped.contains(key.group) && (too_many || !agree(job, members))) {
      stopped.insert(key.group);
      result.notes.push_back(fmt::format(
          "group {}: ranks disagree at {} (operation, bytes or members differ), so matching of "
          "this group stops there",
          key.group < 0 ? "(unnamed)" : job.groups[to_index(key.group)], place_of(key)));
    }
    if (members.size() > 1 && stopped.contains(key.group)) {
      alone.insert(alone.end(), members.begin(), members.end());
      continue;
    }
    const std::size_t expected = group_size > 0       ? to_index(group_size)
                                 : job.world_size > 0 ? to_index(job.world_size)
                                                      : job.ranks.size();
    const bool complete = members.size() == expected && (expected > 1 || group_size == 1);
    result.collectives.push_back({members, complete});
  }
  for (const Member& m : alone) result.collectives.push_back({{m}, false});
  std::ranges::sort(result.collectives, {}, [&job](const Matched& m) {
    return communication_of(job, m.members.front()).span.start_ns;
  });
  align_clocks(job, result);
  return result;
}

std::optional<Borders> replay(const Program& program, const Change& change) {
  return Replay(program, change).run();
}

}  // namespace linerate::trace
