// Turns remedies and causes into changes of a replay, and two replays into a gain. A gain is the
// share by which the sum of the counted steps shrinks. Irregular steps are replayed too, because
// steps depend on each other, but they are not counted.
#include "linerate/trace/explain/ceilings.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/typical_step.hpp"

namespace linerate::trace {
namespace {

bool has(const std::vector<Remedy>& remedies, Remedy r) {
  return std::find(remedies.begin(), remedies.end(), r) != remedies.end();
}

}  // namespace

RemedyGains::RemedyGains(const Program& program, const Lateness& lateness,
                         std::set<std::int64_t> left_out, std::optional<double> alone_s)
    : program_(program),
      lateness_(lateness),
      left_out_(std::move(left_out)),
      alone_s_(alone_s),
      recorded_(replay(program)) {}

/// Translates remedies into what a replay leaves out. A fast network and overlap are switches of
/// the replay. Gaps, data stalls and lateness are cuts of own time, point by point.
Change RemedyGains::change_of(const Removal& removal) const {
  const std::vector<Remedy>& remedies = removal.remedies;
  Change change;
  change.instant_network = has(remedies, Remedy::infinitely_fast_network);
  change.nothing_waits = has(remedies, Remedy::perfect_overlap);
  change.cuts_ns = no_cuts(program_);
  const bool gaps = has(remedies, Remedy::no_host_gaps);
  const auto idle = [&](const OwnTime& own) {
    if (gaps) return own.idle_ns();
    return has(remedies, Remedy::no_data_stalls) ? own.idle_in(StepPhase::data_loading) : 0;
  };
  for (std::size_t l = 0; l < program_.lanes.size(); ++l)
    for (std::size_t i = 0; i < program_.lanes[l].points.size(); ++i)
      change.cuts_ns[l][i] = idle(program_.lanes[l].points[i].before);
  // A lane that begins later paused in an unrecorded step.
  if (gaps) lateness_.cut_starts(change.cuts_ns);
  if (has(remedies, Remedy::no_stragglers)) {
    change.instant_unmatched = true;
    lateness_.cut(change.cuts_ns);
  }
  for (const RemovedCause& cause : removal.causes) leave_out(cause, change.cuts_ns);
  return change;
}

/// Adds the cuts of one cause. They are bounded twice: in each step by what the cause takes a step,
/// and in all by that times the steps that have it. The longest pieces go first, so that a pause
/// goes before the little that its rank is slower in everywhere.
///
/// Example. Rank 1 sleeps 60 ms in three of five steps, and computes 5 ms longer than the others in
/// the other two. The cause says 60 ms in three steps. Sorted by length, the three sleeps are cut
/// and use up the 180 ms; the two pieces of 5 ms stay. The result is the job without the sleep.
///
/// Lateness at the lane's start or after its last wait is bounded by step only. Ranks show the same
/// lateness at different ends if a step was not recorded whole.
void RemedyGains::leave_out(const RemovedCause& cause, Cuts& cuts) const {
  struct Piece {
    std::int64_t ns = 0;
    std::size_t point = 0, border = 0;  // the border that it lies before
  };
  Cuts whole = cuts;
  if (cause.late_lane >= 0) lateness_.cut(whole, cause.late_lane);
  for (std::size_t l = 0; l < cuts.size(); ++l) {
    const Lane& lane = program_.lanes[l];
    std::set<std::size_t> left_out;  // borders that such steps end with
    for (const StepWindow& s : lane.steps)
      if (left_out_.contains(s.number)) left_out.insert(s.to);
    std::vector<Piece> pieces;
    std::size_t border = 0, tail = 0;
    for (std::size_t i = 0; i < lane.points.size(); ++i) {
      const Point& point = lane.points[i];
      if (cause.pauses_in)
        whole[l][i] = std::max(whole[l][i], point.before.idle_in(*cause.pauses_in));
      if (whole[l][i] > cuts[l][i] && !left_out.contains(border))
        pieces.push_back({whole[l][i] - cuts[l][i], i, border});
      border += point.kind == PointKind::border;
      if (point.kind == PointKind::wait) tail = i + 1;
    }
    if (!cause.per_step_ns) {
      cuts[l] = whole[l];
      continue;
    }
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.ns > b.ns; });
    std::vector<std::int64_t> left_in_step(border + 1, *cause.per_step_ns);
    std::int64_t left = *cause.per_step_ns * cause.steps;
    for (const Piece& piece : pieces) {
      const bool at_end = piece.point == 0 || piece.point >= tail;
      std::int64_t taken = std::min(piece.ns, left_in_step[piece.border]);
      if (!at_end) taken = std::min(taken, left);
      cuts[l][piece.point] += taken, left_in_step[piece.border] -= taken;
      if (!at_end) left -= taken;
    }
  }
}

/// Seconds of all counted steps: of the rank that takes longest, because the others wait for it. If
/// no rank communicates, nobody waits, and the sum over ranks counts.
double RemedyGains::total_s(const Borders& borders) const {
  const bool apart = program_.collectives.empty();
  std::int64_t most = 0;
  for (std::size_t l = 0; l < borders.size(); ++l) {
    std::int64_t sum = 0;
    for (const StepWindow& s : program_.lanes[l].steps)
      if (!left_out_.contains(s.number)) sum += borders[l][s.to] - borders[l][s.from];
    most = apart ? most + sum : std::max(most, sum);
  }
  return static_cast<double>(most) * 1e-9;
}

/// Seconds that data takes at least over all counted steps, on the rank that moves most.
double RemedyGains::network_s() const {
  std::int64_t most = 0;
  for (const Lane& lane : program_.lanes) {
    std::int64_t sum = 0;
    for (const auto& [step, ns] : lane.network_ns)
      if (!left_out_.contains(step)) sum += ns;
    most = std::max(most, sum);
  }
  return static_cast<double>(most) * 1e-9;
}

/// Number of the steps that are not left out, on the rank that has most of them.
std::size_t RemedyGains::counted_steps() const {
  std::size_t steps = 0;
  for (const Lane& lane : program_.lanes) {
    const auto counted =
        std::count_if(lane.steps.begin(), lane.steps.end(),
                      [this](const StepWindow& s) { return !left_out_.contains(s.number); });
    steps = std::max(steps, to_index(counted));
  }
  return steps;
}

/// What the typical rank takes longer than its step alone; 0: unknown.
double RemedyGains::slowed_s(const Borders& borders, double alone_s) const {
  if (alone_s <= 0 || program_.collectives.empty()) return 0;
  std::vector<double> sums;
  for (std::size_t l = 0; l < borders.size(); ++l) {
    std::int64_t sum = 0;
    for (const StepWindow& s : program_.lanes[l].steps)
      if (!left_out_.contains(s.number)) sum += borders[l][s.to] - borders[l][s.from];
    sums.push_back(static_cast<double>(sum) * 1e-9);
  }
  return std::max(0.0,
                  lower_median(std::move(sums)) - alone_s * static_cast<double>(counted_steps()));
}

/// The gain, as a share, if the counted steps take `seconds` in place of what was recorded.
double RemedyGains::share_left(double seconds) const {
  const double before = total_s(*recorded_);
  return before > 0 ? std::clamp(1 - seconds / before, 0.0, 1.0) : 0.0;
}

double RemedyGains::share_of(const Removal& removal) const {
  if (has(removal.remedies, Remedy::perfect_overlap)) return overlapped_share(removal, 0);
  const auto after = replay(program_, change_of(removal));
  if (!after) return 0;
  std::optional<double> most_s;  // ranks may pause for longer in different steps
  for (const RemovedCause& cause : removal.causes)
    if (cause.per_step_ns)
      most_s = most_s.value_or(0) + 1e-9 * static_cast<double>(*cause.per_step_ns) * cause.steps;
  const double share = share_left(total_s(*after));
  return most_s ? std::min(share, *most_s / total_s(*recorded_)) : share;
}

/// The ceiling of a removal: bounds on causes are lifted, and nothing waits. Without pauses the
/// device also catches up with its host, so host gaps go with them.
double RemedyGains::most_of(const Removal& removal) const {
  Removal more = removal;
  bool pauses = has(removal.remedies, Remedy::no_data_stalls);
  for (RemovedCause& cause : more.causes) {
    cause.per_step_ns.reset();
    pauses |= cause.pauses_in.has_value();
  }
  // After a pause the device catches up with its host.
  if (pauses) more.remedies.push_back(Remedy::no_host_gaps);
  const double share = overlapped_share(more, 0);
  return has(removal.remedies, Remedy::infinitely_fast_network)
             ? std::max(share, overlapped_share(more, alone_s_.value_or(0)))
             : share;
}

/// The gain if no rank waits. At least the time remains that the network needs. `alone_s`: a
/// typical rank's step then, if that is shorter; 0: unknown.
double RemedyGains::overlapped_share(const Removal& removal, double alone_s) const {
  Change change = change_of(removal);
  change.nothing_waits = true;
  const auto after = replay(program_, change);
  if (!after) return 0;
  const double network = change.instant_network ? 0 : network_s();
  return share_left(std::max(total_s(*after) - slowed_s(*after, alone_s), network));
}

double RemedyGains::step_s(const Change& change) const {
  const auto after = replay(program_, change);
  const std::size_t steps = counted_steps();
  return after && steps > 0 ? total_s(*after) / static_cast<double>(steps) : 0;
}

RemedyShares RemedyGains::by_remedy() const {
  RemedyShares shares;
  for (std::size_t r = 0; r < kRemedies; ++r)
    shares[r] = share_of({.remedies = {static_cast<Remedy>(r)}});
  return shares;
}

/// Pairs of remedies that remove the same time. A sleep on one rank is a host gap there and
/// lateness for the others. If each of the two remedies gains 30 % and both together 32 %, then 28
/// % is counted twice. Pairs of less than half a percent are left out.
std::vector<SharedGain> RemedyGains::shared(const RemedyShares& alone) const {
  constexpr double kWorthSaying = 0.005;
  std::vector<SharedGain> found;
  for (std::size_t i = 0; i < kRemedies; ++i)
    for (std::size_t j = i + 1; j < kRemedies; ++j) {
      if (alone[i].value_or(0) < kWorthSaying || alone[j].value_or(0) < kWorthSaying) continue;
      const auto one = static_cast<Remedy>(i), other = static_cast<Remedy>(j);
      const double twice = *alone[i] + *alone[j] - share_of({.remedies = {one, other}});
      if (twice >= kWorthSaying) found.push_back({one, other, twice});
    }
  return found;
}

/// Mean over ranks.
std::map<std::int64_t, double> RemedyGains::step_lengths_s(const Borders& borders) const {
  std::map<std::int64_t, std::pair<double, int>> sums;
  for (std::size_t l = 0; l < borders.size(); ++l)
    for (const StepWindow& s : program_.lanes[l].steps) {
      auto& [sum, count] = sums[s.number];
      sum += static_cast<double>(borders[l][s.to] - borders[l][s.from]) * 1e-9, ++count;
    }
  std::map<std::int64_t, double> lengths;
  for (const auto& [number, sum] : sums) lengths[number] = sum.first / sum.second;
  return lengths;
}

/// Three replays of the whole job, and what each step is shorter by in them: the verdict asks each
/// step whether it agrees (verdict.cpp).
std::map<std::int64_t, StepGain> RemedyGains::by_step() const {
  const auto before = step_lengths_s(*recorded_);
  const auto gain = [&](std::vector<Remedy> remedies) {
    auto gains = before;
    if (const auto after = replay(program_, change_of({.remedies = std::move(remedies)}))) {
      const auto lengths = step_lengths_s(*after);
      for (auto& [number, s] : gains) s -= lengths.at(number);
    }
    return gains;
  };
  const auto transfer = gain({Remedy::infinitely_fast_network});
  const auto wait = gain({Remedy::no_stragglers});
  const auto both = gain({Remedy::infinitely_fast_network, Remedy::no_stragglers});
  std::map<std::int64_t, StepGain> all;
  for (const auto& [number, s] : before)
    all[number] = {transfer.at(number), wait.at(number), both.at(number)};
  return all;
}

}  // namespace linerate::trace
