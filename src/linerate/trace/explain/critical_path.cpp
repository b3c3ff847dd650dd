#include "linerate/trace/explain/critical_path.hpp"

#include <algorithm>

#include "linerate/core/statistics.hpp"
#include "linerate/trace/explain/program_builder.hpp"

namespace linerate::trace {
namespace {

/// A rank that is late by less, or data that is waited for less, is not named.
constexpr double kLeastShareOfStep = 0.05;
/// So many causes get a replay of their own.
constexpr std::size_t kMostReplayed = 8;

std::vector<std::int64_t> step_numbers(const Program& program) {
  std::set<std::int64_t> numbers;
  for (const Lane& lane : program.lanes)
    for (const StepWindow& s : lane.steps) numbers.insert(s.number);
  return {numbers.begin(), numbers.end()};
}

/// Steps that only some ranks have.
std::set<std::int64_t> steps_of_some(const Program& program) {
  std::map<std::int64_t, std::size_t> lanes_with_it;
  std::size_t lanes = 0;
  for (const Lane& lane : program.lanes) {
    lanes += !lane.steps.empty();
    for (const StepWindow& s : lane.steps) ++lanes_with_it[s.number];
  }
  std::set<std::int64_t> some;
  for (const auto& [number, count] : lanes_with_it)
    if (count < lanes) some.insert(number);
  return some;
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

/// Idle while data is being loaded, by step: the lower median of ranks.
std::map<std::int64_t, double> loading_s(const Program& program) {
  std::map<std::int64_t, std::vector<double>> idle;
  for (const Lane& lane : program.lanes) {
    std::vector<double> by_border;
    double open = 0;
    for (const Point& p : lane.points) {
      open += static_cast<double>(p.before.idle[static_cast<std::size_t>(Phase::data_loading)]);
      if (p.kind == PointKind::border) by_border.push_back(open * 1e-9), open = 0;
    }
    for (const StepWindow& s : lane.steps) idle[s.number].push_back(by_border[s.to]);
  }
  std::map<std::int64_t, double> middle;
  for (auto& [number, of_ranks] : idle) {
    std::sort(of_ranks.begin(), of_ranks.end());
    middle[number] = of_ranks[(of_ranks.size() - 1) / 2];
  }
  return middle;
}

std::optional<Cause> waiting_for_data(const Program& program,
                                      const std::set<std::int64_t>& left_out, double step_s) {
  std::vector<double> waits;
  int steps = 0;
  for (const auto& [number, s] : loading_s(program)) {
    if (left_out.contains(number)) continue;
    ++steps;
    if (s >= kLeastShareOfStep * step_s && s > 0) waits.push_back(s);
  }
  if (waits.empty() || 4 * waits.size() <= static_cast<std::size_t>(steps)) return std::nullopt;
  return Cause{.kind = CauseKind::data_loading,
               .per_step_s = median(waits),
               .steps_with_it = static_cast<int>(waits.size()),
               .steps = steps,
               .where = Phase::data_loading};
}

/// What each cause gains. A rank is no cause if its delay gains less than is worth naming, alone
/// and with all other late ranks on time: by chance one of two is late in some steps.
void add_gains(CriticalPath& path, const Gains& gains, const std::vector<int>& ranks) {
  const std::size_t replayed = std::min(kMostReplayed, path.causes.size());
  const auto lane_of = [&ranks](const Cause& c) {
    return static_cast<std::int32_t>(std::find(ranks.begin(), ranks.end(), c.rank) - ranks.begin());
  };
  std::vector<std::int32_t> late;
  for (std::size_t i = 0; i < replayed; ++i)
    if (path.causes[i].kind == CauseKind::late_rank) late.push_back(lane_of(path.causes[i]));
  const double all = gains.share_without_late(late);
  std::vector<Cause> kept;
  for (std::size_t i = 0; i < path.causes.size(); ++i) {
    Cause c = path.causes[i];
    if (c.kind == CauseKind::data_loading) {
      c.gain_share = ceiling_of(path.ceilings, Remedy::no_data_stalls);
    } else if (i < replayed) {
      const std::int32_t lane = lane_of(c);
      c.gain_share = gains.share_without_late(std::span(&lane, 1));
      std::vector<std::int32_t> others = late;
      std::erase(others, lane);
      const double last = others.empty() ? all : all - gains.share_without_late(others);
      if (std::max(*c.gain_share, last) < kLeastShareOfStep) continue;
    }
    kept.push_back(c);
  }
  path.causes = std::move(kept);
}

}  // namespace

std::set<std::int64_t> CriticalPath::left_out() const {
  std::set<std::int64_t> steps = of_some_ranks;
  for (const Irregularity& i : irregular) steps.insert({i.step, i.held_up.value_or(i.step)});
  return steps;
}

CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole) {
  CriticalPath path;
  const Program program = program_of(job, matched);
  const std::vector<std::int64_t> steps = step_numbers(program);
  if (steps.empty()) return path;
  path.of_some_ranks = steps_of_some(program);
  path.no_common_step = path.of_some_ranks.size() == steps.size();
  if (path.no_common_step) return path;
  std::vector<int> ranks;
  for (const RankActivity& r : job.ranks) ranks.push_back(r.rank);
  path.irregular = irregularities(program, ranks);
  std::erase_if(path.irregular,
                [&path](const Irregularity& i) { return path.of_some_ranks.contains(i.step); });
  const std::set<std::int64_t> left_out = path.left_out();
  const double step_s = median_step_s(program, path.of_some_ranks);
  if (auto cause = waiting_for_data(program, left_out, step_s)) path.causes.push_back(*cause);
  if (!whole) return path;
  const Lateness lateness(program);
  const std::vector<Late> late = lateness.all();
  std::vector<std::int64_t> common = steps;
  std::erase_if(common, [&path](std::int64_t n) { return path.of_some_ranks.contains(n); });
  path.lateness_s = median_lateness_s(late, program.lanes.size(), common);
  for (const Cause& c : late_ranks(late, ranks, steps, left_out, kLeastShareOfStep * step_s))
    path.causes.push_back(c);
  const Gains gains(program, lateness, left_out);
  if (!gains.known()) return path;
  path.ceilings = gains.ceilings();
  path.shared = gains.shared(path.ceilings);
  path.communication_share =
      gains.share_of({Remedy::infinitely_fast_network, Remedy::no_stragglers});
  path.by_step = gains.by_step();
  add_gains(path, gains, ranks);
  return path;
}

}  // namespace linerate::trace
