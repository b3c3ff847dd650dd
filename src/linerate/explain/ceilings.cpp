// Turns remedies and causes into changes of a replay, and two replays into a gain. A gain is the
// share by which the sum of the counted steps shrinks. Irregular steps are replayed too, because
// steps depend on each other, but they are not counted.
#include "linerate/explain/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/explain/lateness.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// What is left out of a replay.
struct Removal {
  std::vector<Remedy> remedies = {};
  /// Without a late rank's cause its lane comes with the median of the others. Any other cause is
  /// the pauses of every lane in a phase.
  std::vector<Cause> causes = {};
  /// Whether no more is left out than a cause takes in each of its steps. A lane that is late by a
  /// pause may be slower in other things, too.
  bool bounded = true;

  bool has(Remedy r) const { return std::ranges::find(remedies, r) != remedies.end(); }
};

std::int64_t per_step_ns(const Cause& c) { return std::llround(c.per_step_s * 1e9); }

/// By number, mean over the lanes that have the step.
std::map<std::int64_t, double> step_lengths_s(const Program& program, const Borders& borders) {
  std::map<std::int64_t, std::vector<double>> of_ranks;
  for (std::size_t l = 0; l < borders.size(); ++l)
    for (const StepWindow& s : program.lanes[l].steps)
      of_ranks[s.number].push_back(in_seconds(borders[l][s.to] - borders[l][s.from]));
  std::map<std::int64_t, double> lengths;
  for (const auto& [number, seconds] : of_ranks) lengths[number] = mean(seconds);
  return lengths;
}

/// Replays, each over all steps but those left out.
class RemedyGains {
 public:
  /// Nothing is known if communications wait for each other in a circle: no replay. `ranks`: by
  /// lane. `alone_s`: the step of a rank that computes alone, at least; 0: unknown.
  RemedyGains(const Program& program, const std::vector<int>& ranks,
              std::set<std::int64_t> left_out, double alone_s)
      : program_(program),
        ranks_(ranks),
        left_out_(std::move(left_out)),
        alone_s_(alone_s),
        recorded_(replay(program)) {}

  bool known() const { return recorded_.has_value(); }

  /// What the step gains, as a share of the recorded step from 0 to 1. Everything else takes as
  /// long as recorded, and waits for what it waited for. It is no more than the causes take.
  /// Requires known().
  double share_of(const Removal& removal) const {
    if (removal.has(Remedy::perfect_overlap)) return overlapped_share(removal, 0);
    const auto after = replay(program_, change_of(removal));
    if (!after) return 0;
    const double share = share_left(total_s(*after));
    if (!removal.bounded || removal.causes.empty()) return share;
    double most_s = 0;  // ranks may pause for longer in different steps
    for (const Cause& c : removal.causes)
      most_s += 1e-9 * static_cast<double>(per_step_ns(c)) * c.steps_with_it;
    return std::min(share, most_s / total_s(*recorded_));
  }

  /// What it could gain at most, as a share of the recorded step. No step is shorter than what its
  /// busiest rank, or the network, has left to do.
  ///
  /// Other things may become faster without the cause, so bounds on causes are lifted, and nothing
  /// waits. Data moves as fast as the fastest of its kind. After a pause the device catches up with
  /// its host, so host gaps go with pauses. An infinitely fast network slows no computation either,
  /// so the typical rank then takes what it takes alone.
  double most_of(const Removal& removal) const {
    Removal more = removal;
    more.bounded = false;
    const bool pauses = std::ranges::any_of(
        removal.causes, [](const Cause& c) { return c.kind != CauseKind::late_rank; });
    if (pauses || removal.has(Remedy::no_data_stalls))
      more.remedies.push_back(Remedy::no_host_gaps);
    const double share = overlapped_share(more, 0);
    return removal.has(Remedy::infinitely_fast_network)
               ? std::max(share, overlapped_share(more, alone_s_))
               : share;
  }

  /// Of each remedy alone.
  RemedyShares by_remedy() const {
    RemedyShares shares;
    for (std::size_t r = 0; r < kRemedies; ++r)
      shares[r] = share_of({.remedies = {static_cast<Remedy>(r)}});
    return shares;
  }

  /// By number of the step, from three replays of the whole job. The verdict asks each step whether
  /// it agrees (explanation.cpp).
  std::map<std::int64_t, StepGain> by_step() const {
    const auto before = step_lengths_s(program_, *recorded_);
    std::map<std::int64_t, StepGain> all;
    const auto set = [&](double StepGain::*gain, std::vector<Remedy> remedies) {
      const auto after = replay(program_, change_of({.remedies = std::move(remedies)}));
      const auto lengths = step_lengths_s(program_, after.value_or(Borders()));
      for (const auto& [number, s] : before) all[number].*gain = after ? s - lengths.at(number) : s;
    };
    set(&StepGain::transfer_s, {Remedy::infinitely_fast_network});
    set(&StepGain::wait_s, {Remedy::no_stragglers});
    set(&StepGain::communication_s, {Remedy::infinitely_fast_network, Remedy::no_stragglers});
    return all;
  }

 private:
  /// Translates remedies into what a replay leaves out. A fast network is a switch of the replay,
  /// as is overlap (overlapped_share). Gaps, data stalls and lateness are cuts of own time, point
  /// by point.
  Change change_of(const Removal& removal) const {
    Change change;
    change.instant_network = removal.has(Remedy::infinitely_fast_network);
    change.cuts_ns = no_cuts(program_);
    const bool gaps = removal.has(Remedy::no_host_gaps);
    const bool stalls = removal.has(Remedy::no_data_stalls);
    for (std::size_t l = 0; l < program_.lanes.size(); ++l)
      for (std::size_t i = 0; i < program_.lanes[l].points.size(); ++i) {
        const OwnTime& own = program_.lanes[l].points[i].before;
        change.cuts_ns[l][i] = gaps     ? own.idle_ns()
                               : stalls ? own.idle_in(StepPhase::data_loading)
                                        : 0;
      }
    // A lane that begins later paused in an unrecorded step.
    if (gaps) cut_late_starts(program_, change.cuts_ns);
    if (removal.has(Remedy::no_stragglers)) {
      change.instant_unmatched = true;
      cut_lateness(program_, change.cuts_ns);
    }
    for (const Cause& cause : removal.causes) leave_out(cause, removal.bounded, change.cuts_ns);
    return change;
  }

  /// Adds the cuts of one cause. They are bounded twice: in each step by what the cause takes a
  /// step, and in all by that times the steps that have it. The longest pieces go first, so that a
  /// pause goes before the little that its rank is slower in everywhere.
  ///
  /// Example. Rank 1 sleeps 60 ms in three of five steps, and computes 5 ms longer than the others
  /// in the other two. The cause says 60 ms in three steps. Sorted by length, the three sleeps are
  /// cut and use up the 180 ms; the two pieces of 5 ms stay. The result is the job without the
  /// sleep.
  ///
  /// Lateness at the lane's start or after its last wait is bounded by step only. Ranks show the
  /// same lateness at different ends if a step was not recorded whole.
  void leave_out(const Cause& cause, bool bounded, Cuts& cuts) const {
    struct Piece {
      std::int64_t ns = 0;
      std::size_t point = 0, border = 0;  // the border that it lies before
    };
    Cuts whole = cuts;
    if (cause.kind == CauseKind::late_rank)
      cut_lateness(program_, whole,
                   to_index(std::ranges::find(ranks_, cause.rank) - ranks_.begin()));
    else
      for (std::size_t l = 0; l < whole.size(); ++l)
        for (std::size_t i = 0; i < whole[l].size(); ++i)
          whole[l][i] =
              std::max(whole[l][i], program_.lanes[l].points[i].before.idle_in(*cause.where));
    if (!bounded) {
      cuts = std::move(whole);
      return;
    }
    for (std::size_t l = 0; l < cuts.size(); ++l) {
      const Lane& lane = program_.lanes[l];
      std::set<std::size_t> left_out;  // borders that such steps end with
      for (const StepWindow& s : lane.steps)
        if (left_out_.contains(s.number)) left_out.insert(s.to);
      std::vector<Piece> pieces;
      std::size_t border = 0, tail = 0;
      for (std::size_t i = 0; i < lane.points.size(); ++i) {
        const Point& point = lane.points[i];
        if (whole[l][i] > cuts[l][i] && !left_out.contains(border))
          pieces.push_back({whole[l][i] - cuts[l][i], i, border});
        border += point.kind == PointKind::border;
        if (point.kind == PointKind::wait) tail = i + 1;
      }
      std::ranges::stable_sort(pieces, std::greater(), &Piece::ns);
      std::vector<std::int64_t> left_in_step(border + 1, per_step_ns(cause));
      std::int64_t left = per_step_ns(cause) * cause.steps_with_it;
      for (const Piece& piece : pieces) {
        const bool at_end = piece.point == 0 || piece.point >= tail;
        std::int64_t taken = std::min(piece.ns, left_in_step[piece.border]);
        if (!at_end) taken = std::min(taken, left);
        cuts[l][piece.point] += taken, left_in_step[piece.border] -= taken;
        if (!at_end) left -= taken;
      }
    }
  }

  bool counts(const StepWindow& step) const { return !left_out_.contains(step.number); }

  /// Nanoseconds of the counted steps, by lane.
  std::vector<double> lane_sums_ns(const Borders& borders) const {
    std::vector<double> sums;
    for (std::size_t l = 0; l < borders.size(); ++l) {
      std::int64_t sum = 0;
      for (const StepWindow& s : program_.lanes[l].steps)
        if (counts(s)) sum += borders[l][s.to] - borders[l][s.from];
      sums.push_back(static_cast<double>(sum));
    }
    return sums;
  }

  /// Of the rank that takes longest, because the others wait for it. If no rank communicates,
  /// nobody waits, and the sum over ranks counts.
  double total_s(const Borders& borders) const {
    const std::vector<double> sums = lane_sums_ns(borders);
    if (program_.collectives.empty()) return std::accumulate(sums.begin(), sums.end(), 0.0) * 1e-9;
    return sums.empty() ? 0 : std::ranges::max(sums) * 1e-9;
  }

  /// Seconds that data takes at least over all counted steps, on the rank that moves most.
  double network_s() const {
    std::int64_t most = 0;
    for (const Lane& lane : program_.lanes) {
      std::int64_t sum = 0;
      for (const auto& [step, ns] : lane.network_ns)
        if (!left_out_.contains(step)) sum += ns;
      most = std::max(most, sum);
    }
    return in_seconds(most);
  }

  /// What the typical rank takes longer than its step alone; 0: unknown.
  double slowed_s(const Borders& borders, double alone_s) const {
    if (alone_s <= 0 || program_.collectives.empty()) return 0;
    std::ptrdiff_t steps = 0;  // of the rank that has most
    for (const Lane& lane : program_.lanes)
      steps = std::max(steps, std::ranges::count_if(
                                  lane.steps, [this](const StepWindow& s) { return counts(s); }));
    return std::max(
        0.0, 1e-9 * lower_median(lane_sums_ns(borders)) - alone_s * static_cast<double>(steps));
  }

  /// The gain, as a share, if the counted steps take `seconds` in place of what was recorded.
  double share_left(double seconds) const {
    const double before = total_s(*recorded_);
    return before > 0 ? std::clamp(1 - seconds / before, 0.0, 1.0) : 0.0;
  }

  /// The gain if no rank waits. At least the time remains that the network needs. `alone_s`: a
  /// typical rank's step then, if that is shorter; 0: unknown.
  double overlapped_share(const Removal& removal, double alone_s) const {
    Change change = change_of(removal);
    change.nothing_waits = true;
    const auto after = replay(program_, change);
    if (!after) return 0;
    const double network = change.instant_network ? 0 : network_s();
    return share_left(std::max(total_s(*after) - slowed_s(*after, alone_s), network));
  }

  const Program& program_;
  const std::vector<int>& ranks_;
  std::set<std::int64_t> left_out_;
  double alone_s_ = 0;
  std::optional<Borders> recorded_;
};

// From a job to causes and gains, in this order:
//
// 1. Keep the steps that all ranks recorded (causes.hpp).
// 2. Build the program (program_builder.cpp), and set irregular steps aside (causes.hpp).
// 3. Look for pauses that all ranks share, and for ranks that are late.
// 4. Replay without each remedy and without each cause: what a step gains.
// 5. Drop late ranks whose removal gains nothing.
//
// Step 5 matters because lateness does not add up. If ranks 1 and 2 sleep in the same steps, rank 0
// waits for both. With rank 1 alone on time, rank 0 still waits for rank 2, and the step gains
// nothing. So two figures decide: what the step gains without the rank's delay, and what that adds
// once all other late ranks are on time.

/// A rank that is late by less, or data that is waited for less, is not named.
constexpr double kLeastShareOfStep = 0.05;
/// If no host's pauses were recorded, a rank's idle time includes the time between its operators.
/// So a shared pause must be longer to be named: by these, as a share of the step and in seconds.
constexpr double kLeastUnseen = 0.2, kLeastUnseen_s = 1e-3;
/// So many causes get a replay of their own.
constexpr std::size_t kMostReplayed = 8;

std::vector<std::int64_t> step_numbers(const Program& program) {
  std::set<std::int64_t> numbers;
  for (const Lane& lane : program.lanes)
    for (const StepWindow& s : lane.steps) numbers.insert(s.number);
  return {numbers.begin(), numbers.end()};
}

bool has_device(const Job& job) {
  return std::ranges::any_of(job.ranks, [](const RankActivity& r) {
    return !r.compute.empty() || !r.copies.empty() || !r.communications.empty();
  });
}

/// Median over steps that all ranks have, mean over ranks.
double median_step_s(const Program& program, const std::set<std::int64_t>& of_some) {
  const Borders recorded = mapped(program.lanes, &Lane::borders_ns);
  std::vector<double> steps;
  for (const auto& [number, length_s] : step_lengths_s(program, recorded))
    if (!of_some.contains(number)) steps.push_back(length_s);
  return steps.empty() ? 0 : median(steps);
}

/// Numbers of the steps whose marks end before their work does, on any rank.
std::set<std::int64_t> cut_steps(const Job& job) {
  std::set<std::int64_t> cut;
  for (const RankActivity& r : job.ranks)
    for (const StepSpan& s : r.steps)
      if (s.cut) cut.insert(s.number);
  return cut;
}

/// Adds to each cause what the step gains without it, at most the time that is said of the cause. A
/// late rank is dropped if its removal gains less than kLeastShareOfStep, both alone and as the
/// last one of all late ranks. By chance one of two ranks is late in some steps.
void add_gains(CriticalPath& path, const RemedyGains& gains) {
  const std::size_t replayed = std::min(kMostReplayed, path.causes.size());
  std::vector<Cause> late;
  for (std::size_t i = 0; i < replayed; ++i)
    if (path.causes[i].kind == CauseKind::late_rank) late.push_back(path.causes[i]);
  const double all = gains.share_of({.causes = late});
  std::vector<Cause> kept;
  for (std::size_t i = 0; i < path.causes.size(); ++i) {
    Cause c = path.causes[i];
    if (c.kind == CauseKind::late_rank && i >= replayed) {
      kept.push_back(c);
      continue;
    }
    const Removal removal{.causes = {c}};
    c.gain_share = gains.share_of(removal);
    c.most_share = gains.most_of(removal);
    if (c.kind == CauseKind::late_rank) {
      std::vector<Cause> others = late;
      std::erase_if(others, [&c](const Cause& other) { return other.rank == c.rank; });
      const double last = others.empty() ? all : all - gains.share_of({.causes = others});
      if (std::max(*c.gain_share, last) < kLeastShareOfStep) continue;
    }
    kept.push_back(c);
  }
  path.causes = std::move(kept);
}

/// A remedy whose cause was found gets a ceiling above its replay: the rest gets better with it.
/// For any other remedy the ceiling is the replay.
void add_ceilings(CriticalPath& path, const RemedyGains& gains) {
  const bool late = path.has_cause(CauseKind::late_rank);
  const bool loading = path.has_cause(CauseKind::data_loading);
  const bool moving =
      share_for(path.gains, Remedy::infinitely_fast_network).value_or(0) >= kLeastShareOfStep;
  const std::array<bool, kRemedies> has_cause = {
      moving, late, false, late || loading || path.has_cause(CauseKind::pause), loading};
  path.ceilings = path.gains;
  for (std::size_t r = 0; r < kRemedies; ++r)
    if (has_cause[r]) path.ceilings[r] = gains.most_of({.remedies = {static_cast<Remedy>(r)}});
}

}  // namespace

std::set<std::int64_t> CriticalPath::left_out() const {
  std::set<std::int64_t> steps = of_some_ranks;
  steps.insert(cut_longer.begin(), cut_longer.end());
  for (const Irregularity& i : irregular) steps.insert({i.step, i.held_up.value_or(i.step)});
  return steps;
}

bool CriticalPath::has_cause(CauseKind kind) const {
  return std::ranges::find(causes, kind, &Cause::kind) != causes.end();
}

/// If ranks recorded different steps, the common part is analysed in place of the job, by a call of
/// itself. Irregular steps that not all ranks have, or that the recording's end cut, are no
/// finding.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole) {
  if (const std::optional<Job> common = common_part(job)) {
    CriticalPath path = critical_path_of(*common, match_collectives(*common), whole);
    path.of_some_ranks.merge(steps_of_some(job));
    return path;
  }
  CriticalPath path;
  const Program program = program_of(job, matched);
  const std::vector<std::int64_t> steps = step_numbers(program);
  if (steps.empty()) return path;
  path.of_some_ranks = steps_of_some(job);
  path.no_common_step = path.of_some_ranks.size() == steps.size();
  if (path.no_common_step || !has_device(job)) return path;
  const std::vector<int> ranks = mapped(job.ranks, &RankActivity::rank);
  path.irregular = irregularities(program, ranks);
  const std::set<std::int64_t> cut = cut_steps(job);
  std::erase_if(path.irregular, [&](const Irregularity& i) {
    if (cut.contains(i.step) && cut.size() < steps.size()) path.cut_longer.insert(i.step);
    return path.of_some_ranks.contains(i.step) || path.cut_longer.contains(i.step);
  });
  const std::set<std::int64_t> left_out = path.left_out();
  const double step_s = median_step_s(program, path.of_some_ranks);
  const OwnSteps own = own_steps(job, program);
  path.causes = shared_pauses(
      own, left_out, kLeastShareOfStep * step_s,
      own.host ? kLeastShareOfStep * step_s : std::max(kLeastUnseen_s, kLeastUnseen * step_s));
  if (!whole) {
    if (ranks.size() == 1 && ranks.front() >= 0)
      for (Cause& c : path.causes) c.rank = ranks.front();  // of the others nothing is known
    return path;
  }
  const LateSteps late = own.host ? late_steps(own) : late_stretches(program);
  std::vector<std::int64_t> common = steps;
  std::erase_if(common, [&path](std::int64_t n) { return path.of_some_ranks.contains(n); });
  path.lateness_s = median_lateness_s(late, common);
  for (const Cause& c : late_ranks(late, ranks, steps, left_out, kLeastShareOfStep * step_s))
    path.causes.push_back(c);
  const double alone_s = job.one_rank ? job.one_rank->step_s.low_or_value() * job.updates : 0;
  const RemedyGains gains(program, ranks, left_out, alone_s);
  if (!gains.known()) return path;
  path.gains = gains.by_remedy();
  path.communication_share =
      gains.share_of({.remedies = {Remedy::infinitely_fast_network, Remedy::no_stragglers}});
  path.by_step = gains.by_step();
  add_gains(path, gains);
  add_ceilings(path, gains);
  return path;
}

}  // namespace linerate::trace
