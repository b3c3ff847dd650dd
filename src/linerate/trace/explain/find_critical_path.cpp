// From a job to causes and gains, in this order:
//
// 1. Keep the steps that all ranks recorded (common_steps.hpp).
// 2. Build the program (program_builder.hpp), and set irregular steps aside (causes.hpp).
// 3. Look for pauses that all ranks share, and for ranks that are late.
// 4. Replay without each remedy and without each cause (ceilings.hpp): what a step gains.
// 5. Drop late ranks whose removal gains nothing.
//
// Step 5 matters because lateness does not add up. If ranks 1 and 2 sleep in the same steps, rank 0
// waits for both. With rank 1 alone on time, rank 0 still waits for rank 2, and the step gains
// nothing. So two figures decide: what the step gains without the rank's delay, and what that adds
// once all other late ranks are on time.
#include "linerate/trace/explain/find_critical_path.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "linerate/core/statistics.hpp"
#include "linerate/trace/explain/causes.hpp"
#include "linerate/trace/explain/ceilings.hpp"
#include "linerate/trace/explain/common_steps.hpp"
#include "linerate/trace/explain/hook.hpp"
#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/explain/program_builder.hpp"
#include "linerate/trace/explain/step_times.hpp"

namespace linerate::trace {
namespace {

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
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankActivity& r) {
    return !r.compute.empty() || !r.copies.empty() || !r.communications.empty();
  });
}

/// Median over steps that all ranks have, mean over ranks.
double median_step_s(const Program& program, const std::set<std::int64_t>& of_some) {
  std::map<std::int64_t, std::vector<double>> lengths;
  for (const Lane& lane : program.lanes)
    for (const StepWindow& s : lane.steps)
      lengths[s.number].push_back(
          static_cast<double>(lane.borders_ns[s.to] - lane.borders_ns[s.from]) * 1e-9);
  std::vector<double> steps;
  for (const auto& [number, of_ranks] : lengths)
    if (!of_some.contains(number)) steps.push_back(mean(of_ranks));
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

RemovedCause removed(const Cause& c, const std::vector<int>& ranks) {
  RemovedCause removed{.per_step_ns = std::llround(c.per_step_s * 1e9), .steps = c.steps_with_it};
  if (c.kind != CauseKind::late_rank) {
    removed.pauses_in = c.where;
  } else {
    const auto lane = std::find(ranks.begin(), ranks.end(), c.rank) - ranks.begin();
    removed.late_lane = static_cast<std::int32_t>(lane);
  }
  return removed;
}

/// Adds to each cause what the step gains without it, at most the time that is said of the cause. A
/// late rank is dropped if its removal gains less than kLeastShareOfStep, both alone and as the
/// last one of all late ranks. By chance one of two ranks is late in some steps.
void add_gains(CriticalPath& path, const RemedyGains& gains, const std::vector<int>& ranks) {
  const std::size_t replayed = std::min(kMostReplayed, path.causes.size());
  std::vector<RemovedCause> late;
  for (std::size_t i = 0; i < replayed; ++i)
    if (path.causes[i].kind == CauseKind::late_rank) late.push_back(removed(path.causes[i], ranks));
  const double all = gains.share_of({.causes = late});
  std::vector<Cause> kept;
  for (std::size_t i = 0; i < path.causes.size(); ++i) {
    Cause c = path.causes[i];
    if (c.kind == CauseKind::late_rank && i >= replayed) {
      kept.push_back(c);
      continue;
    }
    const Removal removal{.causes = {removed(c, ranks)}};
    c.gain_share = gains.share_of(removal);
    c.most_share = gains.most_of(removal);
    if (c.kind == CauseKind::late_rank) {
      std::vector<RemovedCause> others = late;
      std::erase_if(others, [&](const RemovedCause& other) {
        return other.late_lane == removal.causes.front().late_lane;
      });
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
  const auto found = [&path](CauseKind kind) {
    return std::any_of(path.causes.begin(), path.causes.end(),
                       [kind](const Cause& c) { return c.kind == kind; });
  };
  const bool late = found(CauseKind::late_rank), loading = found(CauseKind::data_loading);
  const bool moving =
      share_for(path.gains, Remedy::infinitely_fast_network).value_or(0) >= kLeastShareOfStep;
  const std::array<bool, kRemedies> has_cause = {
      moving, late, false, late || loading || found(CauseKind::pause), loading};
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
  std::vector<int> ranks;
  for (const RankActivity& r : job.ranks) ranks.push_back(r.rank);
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
  const Lateness lateness(program);
  const std::vector<Late> late = own.host ? late_steps(own) : lateness.all();
  std::vector<std::int64_t> common = steps;
  std::erase_if(common, [&path](std::int64_t n) { return path.of_some_ranks.contains(n); });
  path.lateness_s = median_lateness_s(late, program.lanes.size(), common);
  for (const Cause& c : late_ranks(late, ranks, steps, left_out, kLeastShareOfStep * step_s))
    path.causes.push_back(c);
  std::optional<double> alone_s;
  if (job.one_rank) alone_s = job.one_rank->step_s.low_or_value() * job.updates;
  const RemedyGains gains(program, lateness, left_out, alone_s);
  if (!gains.known()) return path;
  path.gains = gains.by_remedy();
  path.shared = gains.shared(path.gains);
  path.communication_share =
      gains.share_of({.remedies = {Remedy::infinitely_fast_network, Remedy::no_stragglers}});
  path.by_step = gains.by_step();
  add_gains(path, gains, ranks);
  add_ceilings(path, gains);
  path.hook = hook_cost(job, program, gains);
  return path;
}

}  // namespace linerate::trace
