// Two questions, which need opposite statistics. What repeats is a cause, and its median over steps
// says how much it takes. What happened once is an irregularity, found as an outlier from the
// median and kept out of every median that follows.
//
// Example. Steps of a rank take 20, 21, 20, 55 and 20 ms. The median is 20 ms, so the fourth step
// stands out by 35 ms. One of five steps is an exception, and it is left out. With 20, 55, 20, 55
// and 20 ms two of five stand out, which is more than a quarter. That is how the job runs, and a
// cause is looked for in place of an exception.
#include "linerate/explain/causes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

using PhaseTimes = std::array<std::int64_t, kPhases>;

std::optional<StepPhase> largest(const PhaseTimes& times) {
  const auto at = std::ranges::max_element(times);
  const auto phase = static_cast<StepPhase>(at - times.begin());
  return *at <= 0 || phase == StepPhase::unknown ? std::nullopt : std::optional(phase);
}

/// Whether `steps` of `all` are exceptions: at most a quarter, or a single one. Of fewer than three
/// steps none is.
bool few(std::size_t steps, std::size_t all) {
  return all >= 3 && steps <= std::max<std::size_t>(1, all / 4);
}

/// By number of the step.
using Seconds = std::map<std::int64_t, double>;

/// The standard deviation, from the median distance to the median: a few outliers do not count.
double deviation(const std::vector<double>& values) {
  constexpr double kNormal = 1.4826;
  const double middle = median(values);
  return kNormal * median(mapped(values, [middle](double v) { return std::abs(v - middle); }));
}

std::vector<double> values_of(const Seconds& times) {
  return mapped(times, &Seconds::value_type::second);
}

/// Steps that stand out above the median, each with what it is longer by. None unless they are few.
/// A step stands out by a fifth of the median step or by five deviations, whichever is more. On a
/// quiet machine deviations are so small that alone they would make every step an outlier.
Seconds outliers(const Seconds& times, double step_s) {
  constexpr double kLeastShare = 0.2, kDeviations = 5;
  if (times.size() < 3) return {};
  const std::vector<double> values = values_of(times);
  const double mid = median(values);
  const double allowed = std::max(kLeastShare * step_s, kDeviations * deviation(values));
  Seconds found;
  for (const auto& [number, s] : times)
    if (s - mid > allowed) found[number] = s - mid;
  if (!few(found.size(), times.size())) found.clear();
  return found;
}

/// The phase in which a step is longest against the medians of its phases; none if it is unknown.
std::optional<StepPhase> where_longer(const StepTimes& times, std::int64_t number) {
  PhaseTimes longer{};
  for (std::size_t p = 0; p < kPhases; ++p) {
    const auto phase = static_cast<StepPhase>(p);
    const std::vector<double> all = mapped(
        times, [phase](const auto& step) { return static_cast<double>(step.second.of(phase)); });
    longer[p] = times.at(number).of(phase) - std::llround(median(all));
  }
  return largest(longer);
}

/// What one lane's steps say by themselves.
struct LaneSteps {
  Seconds longer_s;                           // steps that stand out: by how much
  std::map<std::int64_t, std::int64_t> next;  // number of the step that follows
  std::vector<Irregularity> own;              // steps whose own time stands out
};

/// Irregular steps of one lane, twice: by their recorded length, which waits for others too, and by
/// their own time, which does not.
LaneSteps steps_of(const Lane& lane, int rank) {
  LaneSteps steps;
  Seconds lengths, totals;
  for (const StepWindow& s : lane.steps)
    lengths[s.number] = in_seconds(lane.borders_ns[s.to] - lane.borders_ns[s.from]);
  if (lengths.empty()) return steps;
  const double step_s = median(values_of(lengths));
  steps.longer_s = outliers(lengths, step_s);
  for (std::size_t i = 1; i < lane.steps.size(); ++i)
    if (lane.steps[i].from == lane.steps[i - 1].to)
      steps.next[lane.steps[i - 1].number] = lane.steps[i].number;
  const StepTimes own = step_times(lane);
  for (const auto& [number, time] : own) totals[number] = in_seconds(time.total_ns());
  for (const auto& [number, longer_s] : outliers(totals, step_s))
    steps.own.push_back(
        {.step = number, .rank = rank, .longer_s = longer_s, .where = where_longer(own, number)});
  return steps;
}

bool all_stand_out(const std::vector<LaneSteps>& lanes, std::int64_t step,
                   std::optional<std::size_t> but = std::nullopt) {
  for (std::size_t l = 0; l < lanes.size(); ++l)
    if (l != but && !lanes[l].longer_s.contains(step)) return false;
  return true;
}

/// Irregular steps of a lane that all ranks feel. The step stands out on every rank. If the rank
/// did it after the step's last collective, the next step of the others stands out instead.
/// Example: rank 1 writes a checkpoint at the end of step 8. Rank 1's step 8 is longer, and ranks 0
/// and 2 are longer in step 9, in which they wait for it. Then step 8 is irregular and 9 is held
/// up.
std::vector<Irregularity> felt_by_all(const std::vector<LaneSteps>& lanes, std::size_t lane) {
  std::vector<Irregularity> felt;
  for (Irregularity i : lanes[lane].own) {
    if (!lanes[lane].longer_s.contains(i.step)) continue;
    if (!all_stand_out(lanes, i.step)) {
      const auto next = lanes[lane].next.find(i.step);
      if (next == lanes[lane].next.end() || !all_stand_out(lanes, next->second, lane)) continue;
      i.held_up = next->second;
    }
    felt.push_back(i);
  }
  return felt;
}

/// One for all ranks if it is the same on each.
void join_alike(std::vector<Irregularity>& of_ranks, std::size_t ranks) {
  const bool alike = std::ranges::all_of(
      of_ranks, [&](const Irregularity& i) { return i.where == of_ranks.front().where; });
  if (of_ranks.size() < 2 || of_ranks.size() != ranks || !alike) return;
  of_ranks.front().rank.reset();
  of_ranks.resize(1);
}

/// Whether lateness is chance (late_ranks). A rank with noisy steps comes late in some and early in
/// others; a rank with a cause comes late and hardly ever early. `late_s`: of its late steps;
/// `all_s`: of all.
bool is_chance(const std::vector<double>& late_s, const std::vector<double>& all_s) {
  constexpr double kDeviations = 3;
  constexpr std::ptrdiff_t kTimesAsOften = 3;
  const double middle = median(late_s);
  const auto early = std::ranges::count_if(all_s, [middle](double s) { return s <= -middle / 2; });
  return middle < kDeviations * deviation(late_s) || std::ssize(late_s) < kTimesAsOften * early;
}

// Own time by step, from the own time before each point of a lane. Lateness by step (late_steps) is
// simpler than by stretch (late_stretches), and is used if the pauses of every rank's host are
// known.

/// Replaces idle time by what the host paused, from its mark of a step to the next one.
void take_pauses(const RankActivity& rank, StepTimes& times) {
  for (auto& [number, own] : times) own.idle = {};
  for (const PhaseSpan& pause : *rank.pauses) {
    const auto after = std::ranges::find_if(
        rank.steps, [&pause](const StepSpan& s) { return s.span.start_ns > pause.span.start_ns; });
    if (after == rank.steps.begin()) continue;
    const auto step = times.find((after - 1)->number);
    if (step != times.end()) step->second.idle[to_index(pause.phase)] += pause.span.length();
  }
}

// A replay compares ranks step by step, so all of them must have the same steps. Profilers do not
// start and stop on all ranks at the same step; this file cuts every rank to the common range.

/// Numbers of the first and the last common step.
struct StepNumbers {
  std::int64_t first = 0, last = 0;

  bool holds(std::int64_t number) const { return first <= number && number <= last; }
};

/// Numbers of steps that all ranks with steps have whole, or else those of all others.
std::set<std::int64_t> numbers_of_steps(const Job& job, bool of_all) {
  std::map<std::int64_t, std::ptrdiff_t> ranks_with_it;
  for (const RankActivity& rank : job.ranks)
    for (const StepSpan& s : rank.steps) ranks_with_it[s.number] += !s.partial;
  const auto ranks =
      std::ranges::count_if(job.ranks, [](const RankActivity& r) { return !r.steps.empty(); });
  std::set<std::int64_t> numbers;
  for (const auto& [number, count] : ranks_with_it)
    if ((count == ranks) == of_all) numbers.insert(number);
  return numbers;
}

void keep_within(auto& records, const Span& window) {
  for (auto& record : records) {
    Span& s = span_of(record);
    s = {std::max(s.start_ns, window.start_ns), std::min(s.end_ns, window.end_ns)};
  }
  std::erase_if(records, [](const auto& record) { return span_of(record).length() <= 0; });
}

/// Cuts one rank to the steps of `range`, in what a program is made of. Of what ran on the device
/// the device's windows decide, of what the host did the host's marks. Work that overlaps an end is
/// kept or dropped whole, because a piece of a kernel is no kernel. Positions of steps are counted
/// anew from the first kept one.
void cut_to(RankActivity& rank, const StepNumbers& range) {
  const auto inside = [&](const StepSpan& s) { return range.holds(s.number); };
  const auto first = std::ranges::find_if(rank.steps, inside);
  const auto end = std::find_if_not(first, rank.steps.end(), inside);
  if (first == end) return;  // a rank without steps
  const std::vector<Span> windows = windows_of_steps(rank);
  const auto from = static_cast<std::int32_t>(first - rank.steps.begin());
  const auto count = static_cast<std::int32_t>(end - first);
  const Span device = {windows[to_index(from)].start_ns,
                       windows[to_index(from + count - 1)].end_ns};
  const Span host = {first->span.start_ns, (end - 1)->span.end_ns};
  const auto began_outside = [&device](const Span& s) {
    return s.start_ns < device.start_ns || s.start_ns >= device.end_ns;
  };
  std::erase_if(rank.compute, began_outside);
  std::erase_if(rank.copies, began_outside);
  keep_within(rank.phases, hull_of(device, host));
  keep_within(rank.calls, host);
  if (rank.pauses) keep_within(*rank.pauses, host);
  std::erase_if(rank.communications, [&](const Communication& c) {
    return c.step >= 0 ? c.step < from || c.step >= from + count : began_outside(c.span);
  });
  for (Communication& c : rank.communications)
    if (c.step >= 0) c.step -= from;
  rank.steps = {first, end};
}

}  // namespace

/// First the steps that a rank's own time explains. A step that is longer on every rank, and that
/// no rank's own time explains, was held up by communication.
std::vector<Irregularity> irregularities(const Program& program, const std::vector<int>& ranks) {
  std::vector<LaneSteps> lanes;
  for (std::size_t l = 0; l < program.lanes.size(); ++l)
    lanes.push_back(steps_of(program.lanes[l], ranks[l]));
  std::map<std::int64_t, std::vector<Irregularity>> found;
  std::set<std::int64_t> explained;
  for (std::size_t l = 0; l < lanes.size(); ++l)
    for (const Irregularity& i : felt_by_all(lanes, l)) {
      found[i.step].push_back(i);
      explained.insert({i.step, i.held_up.value_or(i.step)});
    }
  for (const auto& [step, longer] : lanes.empty() ? Seconds{} : lanes.front().longer_s) {
    if (explained.contains(step) || !all_stand_out(lanes, step)) continue;
    double least = longer;
    for (const LaneSteps& lane : lanes) least = std::min(least, lane.longer_s.at(step));
    found[step].push_back({.step = step, .longer_s = least, .communication = true});
  }
  std::vector<Irregularity> all;
  for (auto& [step, of_ranks] : found) {
    join_alike(of_ranks, lanes.size());
    all.insert(all.end(), of_ranks.begin(), of_ranks.end());
  }
  return all;
}

/// Example. Rank 1 is late by 60, 2, 61, 59 and 1 ms in five steps. A quarter of the greatest is
/// about 15 ms, so three steps count, which is more than a few. Their median is 60 ms and their
/// deviation 1.5 ms, so it is no chance. The cause is 60 ms in 3 of 5 steps.
std::vector<Cause> late_ranks(const LateSteps& lateness, const std::vector<int>& ranks,
                              const std::vector<std::int64_t>& steps,
                              const std::set<std::int64_t>& left_out, double least_s) {
  constexpr double kLeastOfMost = 0.25;
  std::vector<Cause> causes;
  const int all = static_cast<int>(steps.size() - left_out.size());
  for (std::size_t lane = 0; lane < lateness.size(); ++lane) {
    std::map<std::int64_t, Late> by_step = lateness[lane];
    std::erase_if(by_step, [&](const auto& step) { return left_out.contains(step.first); });
    std::vector<double> late, all_s;
    for (const auto& [number, step] : by_step) all_s.push_back(in_seconds(step.ns));
    const double most_s = all_s.empty() ? 0 : std::ranges::max(all_s);
    const double counted_s = std::max(least_s, kLeastOfMost * most_s);
    PhaseTimes where{};
    for (const auto& [number, step] : by_step) {
      if (in_seconds(step.ns) < counted_s || step.ns <= 0) continue;
      late.push_back(in_seconds(step.ns));
      for (std::size_t p = 0; p < kPhases; ++p) where[p] += step.by_phase[p];
    }
    if (late.empty() || few(late.size(), to_index(all)) || is_chance(late, all_s)) continue;
    causes.push_back({.rank = ranks[lane],
                      .per_step_s = median(late),
                      .steps_with_it = static_cast<int>(late.size()),
                      .steps = all,
                      .where = largest(where)});
  }
  std::ranges::sort(causes, std::greater(), &Cause::per_step_s);
  return causes;
}

std::vector<Cause> shared_pauses(const OwnSteps& own, const std::set<std::int64_t>& left_out,
                                 double least_loading_s, double least_pause_s) {
  std::map<std::int64_t, std::vector<const OwnTime*>> steps;
  for (const StepTimes& lane : own.lanes)
    for (const auto& [number, time] : lane)
      if (!left_out.contains(number)) steps[number].push_back(&time);
  std::vector<Cause> causes;
  for (std::size_t p = 0; p < kPhases; ++p) {
    const auto phase = static_cast<StepPhase>(p);
    if (phase == StepPhase::unknown) continue;  // a pause of unknown place is no answer
    const bool loading = phase == StepPhase::data_loading;
    const double least_s = loading ? least_loading_s : least_pause_s;
    std::vector<double> pauses;
    for (const auto& [number, of_ranks] : steps) {
      const double s = lower_median(mapped(
          of_ranks, [phase](const OwnTime* time) { return in_seconds(time->idle_in(phase)); }));
      if (s >= least_s && s > 0) pauses.push_back(s);
    }
    if (pauses.empty() || few(pauses.size(), steps.size())) continue;
    causes.push_back({.kind = loading ? CauseKind::data_loading : CauseKind::pause,
                      .per_step_s = median(pauses),
                      .steps_with_it = static_cast<int>(pauses.size()),
                      .steps = static_cast<int>(steps.size()),
                      .where = phase});
  }
  return causes;
}

std::vector<double> median_lateness_s(const LateSteps& lateness,
                                      const std::vector<std::int64_t>& steps) {
  std::vector<double> medians;
  for (const auto& by_step : lateness) {
    std::vector<double> values =
        mapped(by_step, [](const auto& step) { return std::max(0.0, in_seconds(step.second.ns)); });
    values.resize(std::max(steps.size(), values.size()), 0.0);
    medians.push_back(values.empty() ? 0 : median(values));
  }
  return medians;
}

StepTimes step_times(const Lane& lane) {
  std::vector<OwnTime> up_to;  // by border: since the one before
  OwnTime open;
  for (const Point& p : lane.points) {
    open += p.before;
    if (p.kind == PointKind::border) up_to.push_back(std::exchange(open, {}));
  }
  StepTimes times;
  for (const StepWindow& s : lane.steps) times[s.number] = up_to[s.to];
  return times;
}

OwnSteps own_steps(const Job& job, const Program& program) {
  OwnSteps own;
  own.host =
      std::ranges::all_of(job.ranks, [](const RankActivity& r) { return r.pauses.has_value(); });
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    own.lanes.push_back(step_times(program.lanes[l]));
    if (own.host) take_pauses(job.ranks[l], own.lanes[l]);
  }
  return own;
}

/// The middle of the others is their lower median. Steps that some rank lacks are passed over.
LateSteps late_steps(const OwnSteps& own) {
  LateSteps found(own.lanes.size());
  for (std::size_t l = 0; l < own.lanes.size(); ++l)
    for (const auto& [number, mine] : own.lanes[l]) {
      std::vector<std::pair<std::int64_t, const OwnTime*>> others;
      for (std::size_t o = 0; o < own.lanes.size(); ++o)
        if (const auto its = own.lanes[o].find(number); o != l && its != own.lanes[o].end())
          others.emplace_back(its->second.total_ns(), &its->second);
      if (others.empty() || others.size() + 1 < own.lanes.size()) continue;
      const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
      std::nth_element(others.begin(), middle, others.end());
      Late& late = found[l][number];
      late.ns = mine.total_ns() - middle->first;
      for (std::size_t p = 0; p < kPhases; ++p)
        late.by_phase[p] =
            mine.of(static_cast<StepPhase>(p)) - middle->second->of(static_cast<StepPhase>(p));
    }
  return found;
}

std::set<std::int64_t> steps_of_some(const Job& job) { return numbers_of_steps(job, false); }

std::optional<Job> common_part(const Job& job) {
  const std::set<std::int64_t> numbers = numbers_of_steps(job, true);
  if (numbers.empty()) return std::nullopt;
  const StepNumbers range{*numbers.begin(), *numbers.rbegin()};
  const bool same = std::ranges::all_of(job.ranks, [&](const RankActivity& r) {
    return r.steps.empty() ||
           (range.holds(r.steps.front().number) && range.holds(r.steps.back().number));
  });
  if (same) return std::nullopt;
  Job common = job;
  for (RankActivity& rank : common.ranks) cut_to(rank, range);
  return common;
}

}  // namespace linerate::trace
