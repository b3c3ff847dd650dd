// A lane is cut into stretches at the points where all ranks meet, and a stretch into pieces at its
// issues. Totals of stretches are compared to find lateness, and pieces to find its places.
//
// Example. Between two meetings rank 1 issues two buckets. It takes 6 ms up to the first, 3 ms to
// the second and 5 ms to the wait. Rank 0 takes 4, 4 and 2 ms. Rank 1 is late by 14 - 10 = 4 ms.
// Its pieces are longer by 2, 0 and 3 ms, which is 5 ms in all, because it was faster once. So each
// piece gives 4/5 of what it is longer by: 1.6, 0 and 2.4 ms. After this cut rank 1 comes with rank
// 0.
//
// Both ends of a recording need care. A profiler does not start on all ranks at once, so a lane
// that begins later need not be late. The own time after the last wait delays nobody within the
// recording. Lateness at either end counts only as far as the rank is that late elsewhere.
#include "linerate/explain/lateness.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// By collective: it is joint, and every lane that takes part waits for it. Its ranks leave it
/// together, which makes it a moment from which their times can be compared.
std::vector<bool> where_all_meet(const Program& p) {
  std::vector<std::size_t> waits(p.collectives.size(), 0);
  for (const Lane& lane : p.lanes)
    for (const Point& point : lane.points)
      if (point.kind == PointKind::wait) ++waits[lane.collective_of(point)];
  std::vector<bool> met(p.collectives.size());
  for (std::size_t c = 0; c < met.size(); ++c)
    met[c] = p.collectives[c].joint && p.collectives[c].members.size() > 1 &&
             waits[c] == p.collectives[c].members.size();
  return met;
}

/// By collective: every lane that takes part has waited, for one where all meet, between the issue
/// before it and its own issue. A new stretch begins with such an issue.
std::vector<bool> where_all_begin(const Program& p, const std::vector<bool>& met) {
  std::vector<std::size_t> begins(p.collectives.size(), 0);
  for (const Lane& lane : p.lanes) {
    bool waited = false;
    for (const Point& point : lane.points) {
      if (point.kind == PointKind::border) continue;
      const std::size_t c = lane.collective_of(point);
      if (point.kind == PointKind::wait) {
        waited |= met[c];
      } else if (p.collectives[c].joint) {
        begins[c] += waited;
        waited = false;
      }
    }
  }
  std::vector<bool> all(begins.size());
  for (std::size_t c = 0; c < all.size(); ++c)
    all[c] = begins[c] == p.collectives[c].members.size();
  return all;
}

/// How late the lanes of a program come, stretch by stretch.
///
/// A stretch leads from waits that all ranks have to the next such waits, however many
/// communications are asked for in between. Ranks leave such a wait together, so their own times in
/// the stretch may be compared. The others notice a rank that takes longer at the next wait.
///
/// Example. In one stretch ranks 0, 1 and 2 take 10, 14 and 11 ms of own time. The middle of two
/// others is the earlier one, so ranks 0, 1 and 2 are compared with 11, 10 and 10 ms. Rank 0 is
/// early by 1 ms, rank 1 late by 4 ms, rank 2 late by 1 ms. The wait of a rank would not tell this,
/// because it depends on who was last.
class Lateness {
 public:
  explicit Lateness(const Program& program) : program_(program) {
    const std::vector<bool> met = where_all_meet(program);
    const std::vector<bool> begins = where_all_begin(program, met);
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
      stretches_.emplace_back();
      stretch_at_.emplace_back(program.collectives.size(), -1);
      add_stretches(lane, met, begins);
      mark_gaps(lane);
    }
  }

  /// Phases are subtracted phase by phase, from the same lane whose total was subtracted. So they
  /// sum to the lateness.
  LateSteps all() const {
    const Totals own_times = totals(no_cuts(program_));
    LateSteps found(stretches_.size());
    for (std::size_t lane = 0; lane < stretches_.size(); ++lane)
      for (const Stretch& s : stretches_[lane]) {
        const auto [other, ns] = behind_of(lane, s, false, own_times);
        if (!other) continue;
        Late& late = found[lane][program_.collectives[to_index(s.collective)].step];
        late.ns += ns;
        add_phases(late, lane, s, 1);
        add_phases(late, *other, *stretch_of(*other, s.collective), -1);
      }
    return found;
  }

  /// All comparisons use the cuts as they were at the call (`before`), so the order of lanes and
  /// stretches does not matter. What a late opening cannot give from own time is a later begin of
  /// the lane.
  void cut(Cuts& cuts, std::optional<std::size_t> only) const {
    const Cuts before = cuts;
    const Totals own_times = totals(before);
    for (std::size_t lane = 0; lane < stretches_.size(); ++lane) {
      if (only && *only != lane) continue;
      std::int64_t opening = 0;  // late there, and not within a step
      for (const Stretch& s : stretches_[lane]) {
        const Behind late = behind_of(lane, s, !only, own_times);
        if (late.ns <= 0) continue;
        const std::int64_t rest = late.ns - cut_stretch(s, lane, late, before, cuts);
        if (s.opens) opening = rest;
      }
      // A rank that is late only at its begin or its end shows the profiler's start, or chance.
      const std::int64_t between = most_late_between(lane, !only, own_times);
      const std::int64_t tail = tail_late_by(lane, !only, before);
      cut_piece(lane, tails_[lane].piece, std::min(tail, std::max(between, opening)), cuts);
      cut_start(lane, !only, opening, std::max(between, tail), cuts);
    }
  }

  void cut_starts(Cuts& cuts) const {
    const Cuts none = no_cuts(program_);
    const Totals own_times = totals(none);
    for (std::size_t lane = 0; lane < stretches_.size(); ++lane) {
      const std::int64_t between = most_late_between(lane, true, own_times);
      cut_start(lane, true, INT64_MAX, std::max(between, tail_late_by(lane, true, none)), cuts);
    }
  }

 private:
  /// Own time up to an issue that all its ranks have in common; or (collective -1) from the last of
  /// them to the last wait.
  struct Piece {
    std::int32_t collective = -1;
    std::size_t first = 0, last = 0;  // points
  };
  struct Stretch {
    std::int32_t collective = -1;  // the first one that is asked for, else the first one waited for
    bool opens = false;            // the first of its lane: ranks begin apart
    std::vector<Piece> pieces;
  };
  /// From the last wait that all ranks have to the end of the last step.
  struct Tail {
    std::int32_t behind = -1;  // Stretch::collective of the last stretch; -1: none
    std::int64_t step = -1;    // number of the last step
    Piece piece;
  };
  /// By lane and stretch: own time without the cuts.
  using Totals = std::vector<std::vector<std::int64_t>>;
  /// How much longer than `other` a lane takes over a stretch.
  struct Behind {
    std::optional<std::size_t> other;  // absent: no lane can be compared
    std::int64_t ns = 0;
  };

  const std::vector<Point>& points_of(std::size_t lane) const {
    return program_.lanes[lane].points;
  }

  /// Marks the points of a lane that lie between two runs of steps. A profiler with a schedule
  /// records steps 5 to 8 and 25 to 28. The time in between has no recorded waits, and its length
  /// means nothing. A point belongs to the border that follows it.
  void mark_gaps(std::size_t lane) {
    const Lane& of = program_.lanes[lane];
    std::set<std::size_t> behind_gap;  // borders
    for (std::size_t s = 1; s < of.steps.size(); ++s)
      if (of.steps[s].from != of.steps[s - 1].to) behind_gap.insert(of.steps[s].from);
    std::vector<bool>& gaps = in_gap_.emplace_back();
    std::size_t next_border = 0;
    for (const Point& point : of.points) {
      gaps.push_back(behind_gap.contains(next_border));
      next_border += point.kind == PointKind::border;
    }
  }

  /// The tail is from `first`, the point after the last common wait, to the lane's last border.
  void add_tail(std::size_t lane, std::size_t first) {
    const Lane& of = program_.lanes[lane];
    Tail tail;
    const bool any = !of.steps.empty() && !stretches_[lane].empty();
    for (std::size_t i = of.points.size(); i-- > first && any && tail.behind < 0;)
      if (of.points[i].kind == PointKind::border)
        tail = {.behind = stretches_[lane].back().collective,
                .step = of.steps.back().number,
                .piece = {.first = first, .last = i}};
    tails_.push_back(tail);
  }

  /// Cuts a lane into stretches. `first` is where the open piece begins, `behind_wait` the point
  /// after the last common wait of the open stretch. The first issue at which all ranks begin anew
  /// closes a stretch, which ends at its last common wait. Waits that follow each other without an
  /// issue in between stay in one stretch.
  void add_stretches(std::size_t lane, const std::vector<bool>& met,
                     const std::vector<bool>& begins) {
    const std::vector<Point>& points = points_of(lane);
    Stretch open{.opens = true, .pieces = {}};
    std::size_t first = 0;
    std::size_t behind_last = 0;
    std::size_t behind_wait = 0;  // the point after the last wait of the open stretch; 0: no wait
    const auto close = [&] {
      open.pieces.push_back({.first = first, .last = behind_wait - 1});
      stretch_at_[lane][to_index(open.collective)] =
          static_cast<std::int32_t>(stretches_[lane].size());
      stretches_[lane].push_back(std::exchange(open, {}));
      first = behind_wait;
      behind_wait = 0;
    };
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].kind == PointKind::border) continue;
      const std::size_t at = program_.lanes[lane].collective_of(points[i]);
      const auto c = static_cast<std::int32_t>(at);
      if (points[i].kind == PointKind::wait) {
        if (!met[at]) continue;
        if (open.collective < 0) open.collective = c;
        behind_wait = behind_last = i + 1;
        continue;
      }
      if (!program_.collectives[at].joint) continue;
      if (behind_wait > 0 && begins[at]) close();
      if (open.collective < 0) open.collective = c;
      open.pieces.push_back({.collective = c, .first = first, .last = i});
      first = i + 1;
    }
    if (behind_wait > 0) close();
    add_tail(lane, behind_last);
  }

  /// Own time of the piece in ns, without the cuts.
  std::int64_t length(std::size_t lane, const Piece& piece, const Cuts& cuts) const {
    std::int64_t ns = 0;
    for (std::size_t i = piece.first; i <= piece.last; ++i)
      ns += points_of(lane)[i].before.total_ns() - cuts[lane][i];
    return ns;
  }

  /// The stretch that opens a lane counts from the clock's zero, because lanes begin apart.
  Totals totals(const Cuts& cuts) const {
    Totals all(stretches_.size());
    for (std::size_t lane = 0; lane < stretches_.size(); ++lane)
      for (const Stretch& s : stretches_[lane]) {
        std::int64_t ns = s.opens ? program_.lanes[lane].start_ns : 0;
        for (const Piece& piece : s.pieces) ns += length(lane, piece, cuts);
        all[lane].push_back(ns);
      }
    return all;
  }

  const Stretch* stretch_of(std::size_t lane, std::int32_t collective) const {
    const std::int32_t at = stretch_at_[lane][to_index(collective)];
    return at < 0 ? nullptr : &stretches_[lane][to_index(at)];
  }

  std::int64_t total_of(const Totals& totals, std::size_t lane, std::int32_t collective) const {
    return totals[lane][to_index(stretch_at_[lane][to_index(collective)])];
  }

  /// Against the first of the others, or their lower median.
  Behind behind_of(std::size_t lane, const Stretch& own, bool first,
                   const Totals& own_times) const {
    std::vector<std::pair<std::int64_t, std::size_t>> others;  // own time, lane
    for (const Member& m : program_.collectives[to_index(own.collective)].members) {
      const auto l = to_index(m.rank);
      if (l == lane) continue;
      const Stretch* other = stretch_of(l, own.collective);
      // Another number of points: another program, and nothing to compare.
      if (other != nullptr && other->pieces.size() == own.pieces.size() &&
          other->opens == own.opens)
        others.emplace_back(total_of(own_times, l, own.collective), l);
    }
    if (others.empty()) return {};
    std::ranges::sort(others);
    const auto& [ns, other] = others[first ? 0 : (others.size() - 1) / 2];
    return {other, total_of(own_times, lane, own.collective) - ns};
  }

  /// Adds the stretch's own time by phase, or subtracts it (`sign` -1): a difference by phase says
  /// where lateness arises.
  void add_phases(Late& late, std::size_t lane, const Stretch& stretch, int sign) const {
    for (const Piece& piece : stretch.pieces)
      for (std::size_t i = piece.first; i <= piece.last; ++i)
        for (std::size_t p = 0; p < kPhases; ++p)
          late.by_phase[p] += sign * points_of(lane)[i].before.of(static_cast<StepPhase>(p));
  }

  /// Against the tails that begin after the same collective and end with the same step; others are
  /// no measure. 0 if there are none.
  std::int64_t tail_late_by(std::size_t lane, bool first, const Cuts& before) const {
    const Tail& own = tails_[lane];
    if (own.behind < 0) return 0;
    std::vector<std::int64_t> others;
    for (std::size_t o = 0; o < tails_.size(); ++o)
      if (o != lane && tails_[o].behind == own.behind && tails_[o].step == own.step)
        others.push_back(length(o, tails_[o].piece, before));
    if (others.empty()) return 0;
    std::ranges::sort(others);
    return length(lane, own.piece, before) - others[first ? 0 : (others.size() - 1) / 2];
  }

  /// Between the opening and the tail.
  std::int64_t most_late_between(std::size_t lane, bool first, const Totals& own_times) const {
    std::int64_t most = 0;
    for (const Stretch& s : stretches_[lane])
      if (!s.opens) most = std::max(most, behind_of(lane, s, first, own_times).ns);
    return most;
  }

  /// Moves the lane's start earlier by `late`, but not by more than `most`: a profiler that starts
  /// late does not delay the job.
  void cut_start(std::size_t lane, bool first, std::int64_t late, std::int64_t most,
                 Cuts& cuts) const {
    if (stretches_[lane].empty() || !stretches_[lane].front().opens) return;
    const auto other =
        behind_of(lane, stretches_[lane].front(), first, totals(no_cuts(program_))).other;
    if (!other) return;
    const std::int64_t later = program_.lanes[lane].start_ns - program_.lanes[*other].start_ns;
    cuts[lane].front() += std::max<std::int64_t>(0, std::min({late, later, most}));
  }

  /// Cuts what the lane is late by from the pieces that are longer than the other lane's, in
  /// proportion to how much longer they are. The example at the head of this file shows it. Returns
  /// what was cut.
  std::int64_t cut_stretch(const Stretch& own, std::size_t lane, const Behind& late,
                           const Cuts& before, Cuts& cuts) const {
    const Stretch& theirs = *stretch_of(*late.other, own.collective);
    std::vector<std::int64_t> longer;
    for (const Piece& piece : own.pieces) {
      const auto same = std::ranges::find(theirs.pieces, piece.collective, &Piece::collective);
      const std::int64_t its = same == theirs.pieces.end() ? 0 : length(*late.other, *same, before);
      longer.push_back(std::max<std::int64_t>(0, length(lane, piece, before) - its));
    }
    const std::int64_t sum = std::accumulate(longer.begin(), longer.end(), std::int64_t{0});
    if (sum == 0) return 0;
    const double part = std::min(1.0, static_cast<double>(late.ns) / static_cast<double>(sum));
    std::int64_t cut = 0;
    for (std::size_t i = 0; i < own.pieces.size(); ++i) {
      const auto ns = static_cast<std::int64_t>(part * static_cast<double>(longer[i]) + 0.5);
      cut += ns - cut_piece(lane, own.pieces[i], ns, cuts);
    }
    return cut;
  }

  /// Cuts up to `ns`, and returns what is left. It takes from the longest own time of the piece
  /// until that is gone, then from the next longest. A rank is late by one long pause more often
  /// than by a little everywhere. Time between recorded runs of steps is cut last: nobody knows
  /// what happened there.
  std::int64_t cut_piece(std::size_t lane, const Piece& piece, std::int64_t ns, Cuts& cuts) const {
    if (ns <= 0) return ns;
    std::vector<std::pair<bool, std::int64_t>> rests;  // in a gap; less what was cut before
    for (std::size_t i = piece.first; i <= piece.last; ++i)
      rests.emplace_back(in_gap_[lane][i], cuts[lane][i] - points_of(lane)[i].before.total_ns());
    std::vector<std::size_t> order(rests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&rests](std::size_t i) { return rests[i]; });
    for (const std::size_t i : order) {
      const std::int64_t taken = std::clamp<std::int64_t>(-rests[i].second, 0, ns);
      cuts[lane][piece.first + i] += taken, ns -= taken;
    }
    return ns;
  }

  const Program& program_;
  std::vector<std::vector<Stretch>> stretches_;        // by lane
  std::vector<std::vector<std::int32_t>> stretch_at_;  // by lane and Stretch::collective; -1: none
  std::vector<Tail> tails_;                            // by lane
  /// By lane and point: between two runs of steps, whose waits were not recorded.
  std::vector<std::vector<bool>> in_gap_;
};

// All times of explain are lengths of sets of disjoint intervals (core/intervals.hpp). Two kernels
// from 1 to 4 ms and from 3 to 6 ms are busy for 5 ms. An all-reduce from 4 to 9 ms overlaps for 2
// ms with them, and 3 ms are exposed.

constexpr double Busy::*kBusyFields[] = {&Busy::window_s,           &Busy::compute_s,
                                         &Busy::communication_s,    &Busy::overlap_s,
                                         &Busy::exposed_s,          &Busy::idle_s,
                                         &Busy::exposed_transfer_s, &Busy::exposed_wait_s,
                                         &Busy::exposed_unsplit_s,  &Busy::exposed_transfer_most_s,
                                         &Busy::loading_idle_s};

/// The span as a reader of JSON numbers has it: microseconds in doubles. Near 1.7e15 us, today's
/// time since the epoch, neighbouring doubles are 0.25 us apart. Sums of other tools are over such
/// spans, and tests compare with them.
Span through_doubles(const Span& s, std::int64_t stamp_ns) {
  const auto us = [](std::int64_t ns) {
    return static_cast<double>(static_cast<long double>(ns) / 1000);
  };
  const double start = us(s.start_ns + stamp_ns), end = start + us(s.length());
  const auto ns = [stamp_ns](double t) {
    return static_cast<std::int64_t>(std::llround(static_cast<long double>(t) * 1000)) - stamp_ns;
  };
  return {ns(start), ns(end)};
}

}  // namespace

Cuts no_cuts(const Program& program) {
  return mapped(program.lanes,
                [](const Lane& lane) { return std::vector<std::int64_t>(lane.points.size()); });
}

LateSteps late_stretches(const Program& program) { return Lateness(program).all(); }

void cut_lateness(const Program& program, Cuts& cuts, std::optional<std::size_t> only) {
  Lateness(program).cut(cuts, only);
}

void cut_late_starts(const Program& program, Cuts& cuts) { Lateness(program).cut_starts(cuts); }

/// Ends on devices may differ by 100 us or by a tenth of the longest duration, whichever is more.
/// On CPUs it is 3 ms or a quarter.
Transfers transfers_of(const Job& job, const MatchResult& matched) {
  Transfers out;
  for (const RankActivity& r : job.ranks) out.ns.emplace_back(r.communications.size(), -1);
  if (!job.has_durations) return out;
  for (const Matched& m : matched.collectives) {
    CommOp op = CommOp::unknown;
    std::int64_t least = INT64_MAX, longest = 0, end_low = INT64_MAX, end_high = INT64_MIN;
    for (const Member& member : m.members) {
      const auto rank = to_index(member.rank);
      const Communication& c = communication_of(job, member);
      if (op == CommOp::unknown) op = c.op;
      least = std::min(least, c.span.length());
      longest = std::max(longest, c.span.length());
      end_low = std::min(end_low, c.span.end_ns + matched.clock_offset_ns[rank]);
      end_high = std::max(end_high, c.span.end_ns + matched.clock_offset_ns[rank]);
    }
    if (!m.complete || !synchronises(op)) continue;
    // A synchronising collective ends everywhere at once; the limit is generous for thread
    // wake-ups on CPUs.
    const std::int64_t allowed = std::max<std::int64_t>(job.cpu_device ? 3'000'000 : 100'000,
                                                        longest / (job.cpu_device ? 4 : 10));
    if (end_high - end_low > allowed) {
      ++out.diverging;
      continue;
    }
    for (const Member& member : m.members)
      out.ns[to_index(member.rank)][to_index(member.index)] = least;
  }
  return out;
}

Busy mean_of(const std::vector<Busy>& all) {
  Busy m;
  for (const Busy& b : all) m += b;
  for (double Busy::*f : kBusyFields) m.*f /= std::max(1.0, static_cast<double>(all.size()));
  return m;
}

Busy over_ranks(const std::vector<Busy>& all) {
  Busy m = mean_of(all);
  for (double Busy::*f : {&Busy::idle_s, &Busy::loading_idle_s})
    if (!all.empty()) m.*f = lower_median(mapped(all, f));
  return m;
}

Busy& operator+=(Busy& sum, const Busy& b) {
  for (double Busy::*f : kBusyFields) sum.*f += b.*f;
  return sum;
}

Busy& operator*=(Busy& busy, double factor) {
  for (double Busy::*f : kBusyFields) busy.*f *= factor;
  return busy;
}

Busy measure_as_doubles(const RankActivity& rank) {
  const auto set_of = [&rank](const auto& records) {
    return union_of(mapped(records, [&rank](const auto& record) {
      return through_doubles(span_of(record), rank.stamp_ns);
    }));
  };
  return measure({.compute = set_of(rank.compute), .communication = set_of(rank.communications)},
                 nullptr);
}

/// Idle time is the window less all activity of the device. Without a window it is from the first
/// to the last activity.
Busy measure(const RankSets& s, const Span* window) {
  const auto in = [window](const SpanSet& set) {
    return window != nullptr ? clipped(set, *window) : set;
  };
  const SpanSet compute = in(s.compute), communication = in(s.communication), device = in(s.device);
  Busy b;
  b.compute_s = seconds_of(compute);
  b.communication_s = seconds_of(communication);
  b.overlap_s = seconds_of(intersection_of(compute, communication));
  b.exposed_s = seconds_of(doc::exposed_communication(communication, compute));
  b.window_s = window != nullptr ? window->seconds()
               : device.empty()  ? 0
                                 : Span{device.front().start_ns, device.back().end_ns}.seconds();
  b.idle_s = std::max(0.0, b.window_s - seconds_of(device));
  b.loading_idle_s = seconds_of(difference_of(in(s.loading), device));
  // Several collectives may run at once. A moment in which one of them moves data counts as
  // transfer, whoever waits in another. Waiting goes before what could not be split.
  const SpanSet transfer = difference_of(in(s.transfer), compute);
  const SpanSet wait = difference_of(difference_of(in(s.wait), compute), transfer);
  const SpanSet unsplit =
      difference_of(difference_of(difference_of(in(s.unsplit), compute), transfer), wait);
  b.exposed_transfer_s = seconds_of(transfer);
  b.exposed_wait_s = seconds_of(wait);
  b.exposed_unsplit_s = seconds_of(unsplit);
  b.exposed_transfer_most_s = seconds_of(difference_of(in(s.transfer_most), compute));
  return b;
}

}  // namespace linerate::trace
