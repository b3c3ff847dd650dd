// A replay compares ranks step by step, so all of them must have the same steps. Profilers do not
// start and stop on all ranks at the same step; this file cuts every rank to the common range.
#include "linerate/trace/explain/common_steps.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// Numbers of the first and the last common step.
struct StepNumbers {
  std::int64_t first = 0, last = 0;

  bool holds(std::int64_t number) const { return first <= number && number <= last; }
};

/// By number, whether all ranks with steps have it whole.
std::map<std::int64_t, bool> steps_by_number(const Job& job) {
  std::map<std::int64_t, std::size_t> ranks_with_it;
  std::size_t ranks = 0;
  for (const RankActivity& rank : job.ranks) {
    ranks += !rank.steps.empty();
    for (const StepSpan& s : rank.steps) ranks_with_it[s.number] += !s.partial;
  }
  std::map<std::int64_t, bool> of_all;
  for (const auto& [number, count] : ranks_with_it) of_all[number] = count == ranks;
  return of_all;
}

std::optional<StepNumbers> common_range(const Job& job) {
  std::optional<StepNumbers> range;
  for (const auto& [number, of_all] : steps_by_number(job)) {
    if (!of_all) continue;
    if (!range) range = StepNumbers{number, number};
    range->last = number;
  }
  return range;
}

void keep_within(std::vector<Span>& spans, const Span& window) {
  std::erase_if(spans, [&](const Span& s) { return clipped({s}, window).empty(); });
  for (Span& s : spans)
    s = {std::max(s.start_ns, window.start_ns), std::min(s.end_ns, window.end_ns)};
}
void keep_within(std::vector<PhaseSpan>& spans, const Span& window) {
  std::erase_if(spans, [&](const PhaseSpan& p) { return clipped({p.span}, window).empty(); });
  for (PhaseSpan& p : spans)
    p.span = {std::max(p.span.start_ns, window.start_ns), std::min(p.span.end_ns, window.end_ns)};
}

/// Keeps the work that began within `window`. Work that overlaps its ends is kept or dropped whole,
/// because a piece of a kernel is no kernel.
void keep_begun_within(RankActivity& rank, const Span& window) {
  std::vector<Span> compute;
  std::vector<std::uint64_t> names, sizes;
  for (std::size_t i = 0; i < rank.compute.size(); ++i) {
    const std::int64_t start = rank.compute[i].start_ns;
    if (start < window.start_ns || start >= window.end_ns) continue;
    compute.push_back(rank.compute[i]);
    if (!rank.compute_names.empty()) names.push_back(rank.compute_names[i]);
    if (!rank.launch_sizes.empty()) sizes.push_back(rank.launch_sizes[i]);
  }
  rank.compute = std::move(compute);
  rank.compute_names = std::move(names), rank.launch_sizes = std::move(sizes);
  std::erase_if(rank.copies, [&](const Span& s) {
    return s.start_ns < window.start_ns || s.start_ns >= window.end_ns;
  });
}

/// Cuts one rank to the steps of `range`. What ran on the device is cut by the device's windows,
/// what the host did by the host's marks. Positions of steps are counted anew from the first kept
/// one.
void cut_to(RankActivity& rank, const StepNumbers& range) {
  const auto inside = [&](const StepSpan& s) { return range.holds(s.number); };
  const auto first = std::find_if(rank.steps.begin(), rank.steps.end(), inside);
  const auto end = std::find_if_not(first, rank.steps.end(), inside);
  if (first == end) return;  // a rank without steps
  const std::vector<Span> windows = windows_of_steps(rank);
  const auto from = static_cast<std::int32_t>(first - rank.steps.begin());
  const auto count = static_cast<std::int32_t>(end - first);
  const Span device = {windows[to_index(from)].start_ns,
                       windows[to_index(from + count - 1)].end_ns};
  const Span host = {first->span.start_ns, (end - 1)->span.end_ns};
  keep_begun_within(rank, device);
  keep_within(rank.phases,
              {std::min(device.start_ns, host.start_ns), std::max(device.end_ns, host.end_ns)});
  keep_within(rank.exchange_work, device);
  for (std::vector<Span>* of_host : {&rank.host, &rank.calls, &rank.exchange_calls})
    keep_within(*of_host, host);
  if (rank.pauses) keep_within(*rank.pauses, host);
  const auto outside = [&](std::int32_t step) { return step < from || step >= from + count; };
  std::erase_if(rank.communications, [&](const Communication& c) {
    if (c.step >= 0) return outside(c.step);
    return c.span.start_ns < device.start_ns || c.span.start_ns >= device.end_ns;
  });
  std::erase_if(rank.announced, [&](const Announced& a) { return outside(a.step); });
  std::erase_if(rank.passes, [&](const BackwardPass& p) { return outside(p.step); });
  for (Communication& c : rank.communications)
    if (c.step >= 0) c.step -= from;
  for (Announced& a : rank.announced) a.step -= from;
  for (BackwardPass& p : rank.passes) p.step -= from;
  rank.steps = {first, end};
}

}  // namespace

std::set<std::int64_t> steps_of_some(const Job& job) {
  std::set<std::int64_t> some;
  for (const auto& [number, of_all] : steps_by_number(job))
    if (!of_all) some.insert(number);
  return some;
}

std::optional<Job> common_part(const Job& job) {
  const std::optional<StepNumbers> range = common_range(job);
  if (!range) return std::nullopt;
  const bool same = std::all_of(job.ranks.begin(), job.ranks.end(), [&](const RankActivity& r) {
    return r.steps.empty() ||
           (range->holds(r.steps.front().number) && range->holds(r.steps.back().number));
  });
  if (same) return std::nullopt;
  Job common = job;
  for (RankActivity& rank : common.ranks) cut_to(rank, *range);
  return common;
}

}  // namespace linerate::trace
