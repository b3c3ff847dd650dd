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

#include "linerate/core/index.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// By collective: it is joint, and every lane that takes part waits for it. Its ranks leave it
/// together, which makes it a moment from which their times can be compared.
std::vector<bool> where_all_meet(const Program& p) {
  std::vector<std::size_t> waits(p.collectives.size(), 0);
  for (const Lane& lane : p.lanes)
    for (const Point& point : lane.points)
      if (point.kind == PointKind::wait) ++waits[to_index(point.of.collective)];
  std::vector<bool> met(p.collectives.size());
  for (std::size_t c = 0; c < met.size(); ++c)
    met[c] = p.collectives[c].joint && p.collectives[c].parts.size() > 1 &&
             waits[c] == p.collectives[c].parts.size();
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
      const auto c = to_index(point.of.collective);
      if (point.kind == PointKind::wait) {
        waited |= met[c];
      } else if (p.collectives[c].joint) {
        begins[c] += waited;
        waited = false;
      }
    }
  }
  std::vector<bool> all(begins.size());
  for (std::size_t c = 0; c < all.size(); ++c) all[c] = begins[c] == p.collectives[c].parts.size();
  return all;
}

}  // namespace

Cuts no_cuts(const Program& program) {
  Cuts cuts;
  for (const Lane& lane : program.lanes) cuts.emplace_back(lane.points.size(), 0);
  return cuts;
}

Lateness::Lateness(const Program& program) : program_(program) {
  const std::vector<bool> met = where_all_meet(program);
  const std::vector<bool> begins = where_all_begin(program, met);
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    stretches_.emplace_back();
    stretch_at_.emplace_back(program.collectives.size(), -1);
    add_stretches(l, met, begins);
    mark_gaps(l);
  }
}

/// Marks the points of a lane that lie between two runs of steps. A profiler with a schedule
/// records steps 5 to 8 and 25 to 28. The time in between has no recorded waits, and its length
/// means nothing. Points are visited from the end, so that each belongs to the border that follows
/// it.
void Lateness::mark_gaps(std::size_t lane) {
  const Lane& of = program_.lanes[lane];
  std::vector<bool> gap_before(of.borders_ns.size(), false);  // by border
  for (std::size_t s = 1; s < of.steps.size(); ++s)
    if (of.steps[s].from != of.steps[s - 1].to) gap_before[of.steps[s].from] = true;
  std::vector<bool> gaps(of.points.size());
  bool gap = false;
  std::size_t border = gap_before.size();
  for (std::size_t i = of.points.size(); i-- > 0;) {
    if (of.points[i].kind == PointKind::border) gap = gap_before[--border];
    gaps[i] = gap;
  }
  in_gap_.push_back(std::move(gaps));
}

/// The tail is from `first`, the point after the last common wait, to the lane's last border.
void Lateness::add_tail(std::size_t lane, std::size_t first) {
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
void Lateness::add_stretches(std::size_t lane, const std::vector<bool>& met,
                             const std::vector<bool>& begins) {
  const std::vector<Point>& points = program_.lanes[lane].points;
  Stretch open{.opens = true, .pieces = {}};
  std::size_t first = 0;
  std::size_t behind_last = 0;
  std::size_t behind_wait = 0;  // the point after the last wait of the open stretch; 0: no wait
  const auto close = [&] {
    open.pieces.push_back({.first = first, .last = behind_wait - 1});
    add_stretch(lane, std::move(open));
    open = {};
    first = behind_wait;
    behind_wait = 0;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].kind == PointKind::border) continue;
    const std::int32_t c = points[i].of.collective;
    if (points[i].kind == PointKind::wait) {
      if (!met[to_index(c)]) continue;
      if (open.collective < 0) open.collective = c;
      behind_wait = i + 1;
      behind_last = i + 1;
      continue;
    }
    if (!program_.collectives[to_index(c)].joint) continue;
    if (behind_wait > 0 && begins[to_index(c)]) close();
    if (open.collective < 0) open.collective = c;
    open.pieces.push_back({.collective = c, .first = first, .last = i});
    first = i + 1;
  }
  if (behind_wait > 0) close();
  add_tail(lane, behind_last);
}

void Lateness::add_stretch(std::size_t lane, Stretch stretch) {
  stretch_at_[lane][to_index(stretch.collective)] =
      static_cast<std::int32_t>(stretches_[lane].size());
  stretches_[lane].push_back(std::move(stretch));
}

/// Own time of the piece in ns, without the cuts.
std::int64_t Lateness::length(std::int32_t lane, const Piece& piece, const Cuts& cuts) const {
  const auto l = to_index(lane);
  std::int64_t ns = 0;
  for (std::size_t i = piece.first; i <= piece.last; ++i)
    ns += program_.lanes[l].points[i].before.total_ns() - cuts[l][i];
  return ns;
}

/// The stretch that opens a lane counts from the clock's zero, because lanes begin apart.
Lateness::Totals Lateness::totals(const Cuts& cuts) const {
  Totals all(stretches_.size());
  for (std::size_t l = 0; l < stretches_.size(); ++l)
    for (const Stretch& s : stretches_[l]) {
      std::int64_t ns = s.opens ? program_.lanes[l].start_ns : 0;
      for (const Piece& piece : s.pieces) ns += length(static_cast<std::int32_t>(l), piece, cuts);
      all[l].push_back(ns);
    }
  return all;
}

const Lateness::Stretch* Lateness::stretch_of(std::int32_t lane, std::int32_t collective) const {
  const auto l = to_index(lane);
  const std::int32_t at = stretch_at_[l][to_index(collective)];
  return at < 0 ? nullptr : &stretches_[l][to_index(at)];
}

std::int64_t Lateness::total_of(const Totals& totals, std::int32_t lane,
                                std::int32_t collective) const {
  const auto l = to_index(lane);
  return totals[l][to_index(stretch_at_[l][to_index(collective)])];
}

Lateness::Behind Lateness::behind_of(std::int32_t lane, const Stretch& own, bool first,
                                     const Totals& own_times) const {
  std::vector<Behind> others;  // ns: of their own
  for (const Part& part : program_.collectives[to_index(own.collective)].parts) {
    if (part.lane == lane) continue;
    const Stretch* other = stretch_of(part.lane, own.collective);
    // Another number of points: another program, and nothing to compare.
    if (other != nullptr && other->pieces.size() == own.pieces.size() && other->opens == own.opens)
      others.push_back({part.lane, total_of(own_times, part.lane, own.collective)});
  }
  if (others.empty()) return {};
  const auto wanted =
      others.begin() + (first ? 0 : static_cast<std::ptrdiff_t>((others.size() - 1) / 2));
  std::ranges::nth_element(others, wanted, {},
                           [](const Behind& b) { return std::pair(b.ns, b.other); });
  return {wanted->other, total_of(own_times, lane, own.collective) - wanted->ns};
}

/// Adds the stretch's own time by phase, or subtracts it (`sign` -1): a difference by phase says
/// where lateness arises.
void Lateness::add_phases(Late& late, std::int32_t lane, const Stretch& stretch, int sign) const {
  const std::vector<Point>& points = program_.lanes[to_index(lane)].points;
  for (const Piece& piece : stretch.pieces)
    for (std::size_t i = piece.first; i <= piece.last; ++i)
      for (std::size_t p = 0; p < kPhases; ++p)
        late.by_phase[p] += sign * points[i].before.of(static_cast<StepPhase>(p));
}

/// Phases are subtracted phase by phase, from the same lane whose total was subtracted. So they sum
/// to the lateness.
std::vector<Late> Lateness::all() const {
  const Totals own_times = totals(no_cuts(program_));
  std::vector<Late> found;
  for (std::size_t l = 0; l < stretches_.size(); ++l) {
    const auto lane = static_cast<std::int32_t>(l);
    for (const Stretch& s : stretches_[l]) {
      const auto [other, ns] = behind_of(lane, s, false, own_times);
      if (other < 0) continue;
      Late late{.lane = lane, .step = program_.step_of[to_index(s.collective)], .ns = ns};
      add_phases(late, lane, s, 1);
      add_phases(late, other, *stretch_of(other, s.collective), -1);
      found.push_back(late);
    }
  }
  return found;
}

/// All comparisons use the cuts as they were at the call (`before`), so the order of lanes and
/// stretches does not matter. What a late opening cannot give from own time is a later begin of the
/// lane.
void Lateness::cut(Cuts& cuts, std::optional<std::int32_t> only) const {
  const Cuts before = cuts;
  const Totals own_times = totals(before);
  for (std::size_t l = 0; l < stretches_.size(); ++l) {
    const auto lane = static_cast<std::int32_t>(l);
    if (only && *only != lane) continue;
    std::int64_t opening = 0;  // late there, and not within a step
    for (const Stretch& s : stretches_[l]) {
      const Behind late = behind_of(lane, s, !only, own_times);
      if (late.ns <= 0) continue;
      const std::int64_t rest = late.ns - cut_stretch(s, lane, late, before, cuts);
      if (s.opens) opening = rest;
    }
    // A rank that is late only at its begin or its end shows the profiler's start, or chance.
    const std::int64_t between = most_late_between(lane, !only, own_times);
    const std::int64_t tail = tail_late_by(lane, !only, before);
    cut_piece(lane, tails_[l].piece, std::min(tail, std::max(between, opening)), cuts);
    cut_start(lane, !only, opening, std::max(between, tail), cuts);
  }
}

void Lateness::cut_starts(Cuts& cuts) const {
  const Cuts none = no_cuts(program_);
  for (std::size_t l = 0; l < stretches_.size(); ++l) {
    const auto lane = static_cast<std::int32_t>(l);
    cut_start(lane, true, INT64_MAX,
              std::max(most_late_between(lane, true, totals(none)), tail_late_by(lane, true, none)),
              cuts);
  }
}

/// Against the tails that begin after the same collective and end with the same step; others are no
/// measure. 0 if there are none.
std::int64_t Lateness::tail_late_by(std::int32_t lane, bool first, const Cuts& before) const {
  const Tail& own = tails_[to_index(lane)];
  if (own.behind < 0) return 0;
  std::vector<std::int64_t> others;
  for (std::size_t o = 0; o < tails_.size(); ++o)
    if (o != to_index(lane) && tails_[o].behind == own.behind && tails_[o].step == own.step)
      others.push_back(length(static_cast<std::int32_t>(o), tails_[o].piece, before));
  if (others.empty()) return 0;
  std::ranges::sort(others);
  return length(lane, own.piece, before) - others[first ? 0 : (others.size() - 1) / 2];
}

std::int64_t Lateness::most_late_between(std::int32_t lane, bool first,
                                         const Totals& own_times) const {
  std::int64_t most = 0;
  for (const Stretch& s : stretches_[to_index(lane)])
    if (!s.opens) most = std::max(most, behind_of(lane, s, first, own_times).ns);
  return most;
}

void Lateness::cut_start(std::int32_t lane, bool first, std::int64_t late, std::int64_t most,
                         Cuts& cuts) const {
  const auto l = to_index(lane);
  if (stretches_[l].empty() || !stretches_[l].front().opens) return;
  const std::int32_t other =
      behind_of(lane, stretches_[l].front(), first, totals(no_cuts(program_))).other;
  if (other < 0) return;
  const std::int64_t later = program_.lanes[l].start_ns - program_.lanes[to_index(other)].start_ns;
  cuts[l].front() += std::max<std::int64_t>(0, std::min({late, later, most}));
}

/// Cuts what the lane is late by from the pieces that are longer than the other lane's, in
/// proportion to how much longer they are. The example at the head of this file shows it.
std::int64_t Lateness::cut_stretch(const Stretch& own, std::int32_t lane, const Behind& late,
                                   const Cuts& before, Cuts& cuts) const {
  const Stretch& theirs = *stretch_of(late.other, own.collective);
  std::vector<std::int64_t> longer(own.pieces.size(), 0);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < own.pieces.size(); ++i) {
    const auto same = std::ranges::find_if(
        theirs.pieces, [&](const Piece& p) { return p.collective == own.pieces[i].collective; });
    const std::int64_t mine = length(lane, own.pieces[i], before);
    const std::int64_t its = same == theirs.pieces.end() ? 0 : length(late.other, *same, before);
    longer[i] = std::max<std::int64_t>(0, mine - its);
    sum += longer[i];
  }
  if (sum == 0) return 0;
  const double part = std::min(1.0, static_cast<double>(late.ns) / static_cast<double>(sum));
  std::int64_t cut = 0;
  for (std::size_t i = 0; i < own.pieces.size(); ++i) {
    const auto ns = static_cast<std::int64_t>(part * static_cast<double>(longer[i]) + 0.5);
    cut += ns - cut_piece(lane, own.pieces[i], ns, cuts);
  }
  return cut;
}

/// Time between recorded runs of steps is cut last: nobody knows what happened there.
std::int64_t Lateness::cut_piece(std::int32_t lane, const Piece& piece, std::int64_t ns,
                                 Cuts& cuts) const {
  const std::int64_t left = cut_longest(lane, piece, ns, Gaps::keep, cuts);
  return cut_longest(lane, piece, left, Gaps::cut, cuts);
}

/// Takes from the longest own time of the piece until it is gone, then from the next longest. A
/// rank is late by one long pause more often than by a little everywhere.
std::int64_t Lateness::cut_longest(std::int32_t lane, const Piece& piece, std::int64_t ns,
                                   Gaps gaps, Cuts& cuts) const {
  const auto l = to_index(lane);
  const auto rest = [&](std::size_t i) {
    if (in_gap_[l][i] && gaps == Gaps::keep) return std::int64_t{0};
    return program_.lanes[l].points[i].before.total_ns() - cuts[l][i];
  };
  while (ns > 0) {
    std::size_t longest = piece.first;
    for (std::size_t i = piece.first; i <= piece.last; ++i)
      if (rest(i) > rest(longest)) longest = i;
    const std::int64_t taken = std::min(ns, rest(longest));
    if (taken <= 0) break;
    cuts[l][longest] += taken;
    ns -= taken;
  }
  return ns;
}

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

// All times of explain are lengths of sets of disjoint intervals (core/intervals.hpp). Two kernels
// from 1 to 4 ms and from 3 to 6 ms are busy for 5 ms. An all-reduce from 4 to 9 ms overlaps for 2
// ms with them, and 3 ms are exposed.

namespace {

double mean_over(const std::vector<Busy>& all, double Busy::*field) {
  double sum = 0;
  for (const Busy& b : all) sum += b.*field;
  return all.empty() ? 0 : sum / static_cast<double>(all.size());
}

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

Busy mean_of(const std::vector<Busy>& all) {
  Busy m;
  for (double Busy::*f : kBusyFields) m.*f = mean_over(all, f);
  return m;
}

Busy over_ranks(const std::vector<Busy>& all) {
  Busy m = mean_of(all);
  for (double Busy::*f : {&Busy::idle_s, &Busy::loading_idle_s}) {
    std::vector<double> values;
    for (const Busy& b : all) values.push_back(b.*f);
    if (values.empty()) continue;
    m.*f = lower_median(std::move(values));
  }
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
  std::vector<Span> compute, communication;
  for (const Span& s : rank.compute) compute.push_back(through_doubles(s, rank.stamp_ns));
  for (const Communication& c : rank.communications)
    communication.push_back(through_doubles(c.span, rank.stamp_ns));
  const SpanSet a = union_of(std::move(compute)), b = union_of(std::move(communication));
  Busy busy;
  busy.compute_s = seconds_of(a);
  busy.communication_s = seconds_of(b);
  busy.overlap_s = seconds_of(intersection_of(a, b));
  busy.exposed_s = seconds_of(doc::exposed_communication(b, a));
  return busy;
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
