// A profiler with a schedule writes one file for each cycle. Rank 0 may come with steps 5 to 7 in
// one file and 25 to 27 in another. Files of one rank are sorted by the time at which they were
// recorded and appended. Two files of one rank that overlap in time are not cycles, and refused.
#include "linerate/trace/job/cycles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "linerate/core/error.hpp"

namespace linerate::trace {
namespace {

Span recorded_span(const RankActivity& r) {
  Span all{INT64_MAX, INT64_MIN};
  const auto see = [&all](const Span& s) {
    all = {std::min(all.start_ns, s.start_ns), std::max(all.end_ns, s.end_ns)};
  };
  for (const Span& s : r.compute) see(s);
  for (const Span& s : r.host) see(s);
  for (const StepSpan& s : r.steps) see(s.span);
  for (const Communication& c : r.communications) see(c.span);
  return all;
}

/// Renumbers steps if the cycle before already used their numbers. After steps 0 to 2 come 4 to 6:
/// the gap says that the time between two cycles belongs to no step.
void renumber(const std::vector<StepSpan>& before, std::vector<StepSpan>& steps) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // beyond it sums may leave 64 bits
  if (before.empty() || steps.empty() || steps.front().number > before.back().number) return;
  if (before.back().number > kMost || steps.front().number < 0) return;
  const std::int64_t by = before.back().number + 2 - steps.front().number;
  for (StepSpan& s : steps) s.number += by;
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Positions of steps in `from` go on after those of `to`.
void append_cycle(RankActivity& to, RankActivity& from) {
  renumber(to.steps, from.steps);
  const auto behind = static_cast<std::int32_t>(to.steps.size());
  const auto move_step = [behind](std::int32_t& step) { step += step >= 0 ? behind : 0; };
  for (Communication& c : from.communications) move_step(c.step);
  for (Announced& a : from.announced) move_step(a.step);
  for (BackwardPass& p : from.passes) move_step(p.step);
  std::int64_t issued = -1;
  for (const Communication& c : to.communications) issued = std::max(issued, c.issued);
  for (Communication& c : from.communications)
    if (c.issued >= 0) c.issued += issued + 1;
  append(to.steps, from.steps);
  // A cycle whose names are unknown leaves room for those of the other.
  to.compute_names.resize(to.compute.size());
  from.compute_names.resize(from.compute.size());
  to.launch_sizes.resize(to.compute.size());
  from.launch_sizes.resize(from.compute.size());
  append(to.compute, from.compute);
  append(to.compute_names, from.compute_names);
  append(to.launch_sizes, from.launch_sizes);
  append(to.copies, from.copies);
  append(to.host, from.host);
  if (to.pauses && from.pauses)
    append(*to.pauses, *from.pauses);
  else
    to.pauses.reset();
  append(to.calls, from.calls);
  append(to.exchange_work, from.exchange_work);
  append(to.exchange_calls, from.exchange_calls);
  append(to.phases, from.phases);
  append(to.communications, from.communications);
  append(to.announced, from.announced);
  append(to.passes, from.passes);
}

}  // namespace

/// Sorted by rank and time, each recording either begins a rank or is appended to the one before
/// it.
void join_cycles(Job& job) {
  std::map<int, std::size_t> times;
  for (const RankActivity& r : job.ranks) ++times[r.rank];
  if (times.size() == job.ranks.size()) return;
  struct Cycle {
    RankActivity activity;
    Span recorded_span;
  };
  std::vector<Cycle> cycles;
  for (RankActivity& r : job.ranks) {
    const Span span = recorded_span(r);
    cycles.push_back({std::move(r), span});
  }
  std::stable_sort(cycles.begin(), cycles.end(), [](const Cycle& a, const Cycle& b) {
    return std::pair(a.activity.rank, a.recorded_span) <
           std::pair(b.activity.rank, b.recorded_span);
  });
  std::vector<RankActivity> joined;
  std::int64_t end_ns = INT64_MIN;  // of the last of `joined`
  for (Cycle& c : cycles) {
    RankActivity& r = c.activity;
    const bool another = joined.empty() || r.rank < 0 || joined.back().rank != r.rank;
    const bool same_time = !another && c.recorded_span.start_ns < end_ns;
    end_ns = c.recorded_span.end_ns;
    if (another) {
      joined.push_back(std::move(r));
      continue;
    }
    if (same_time)
      throw InputError(
          r.source,
          fmt::format(
              "is of rank {}, and so is {}, recorded at the same time; give each rank's trace once",
              r.rank, joined.back().source));
    append_cycle(joined.back(), r);
  }
  job.ranks = std::move(joined);
}

}  // namespace linerate::trace
