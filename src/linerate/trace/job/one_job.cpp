// Two checks against files that were collected by mistake: of another run of the job (other times),
// and of another job (other sizes). One common size in one common step is enough, because a trace
// may begin or end inside a step.
#include "linerate/trace/job/one_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {
namespace {

// Clocks of machines that keep time over the network are milliseconds apart; a second run of the
// same job begins many seconds later.
constexpr std::int64_t kMostApart = 2'000'000'000;
// 2001: a stamp below it counts from the start of a machine, which is another moment on each.
constexpr std::int64_t kFirstEpoch = 1'000'000'000'000'000'000;

std::optional<Span> recorded_span_or_none(const RankActivity& r) {
  Span all{INT64_MAX, INT64_MIN};
  const auto see = [&all](const Span& s) { all = hull_of(all, s); };
  for (const StepSpan& s : r.steps) see(s.span);
  if (r.steps.empty()) {
    for (const Span& s : r.compute) see(s);
    for (const Communication& c : r.communications) see(c.span);
  }
  return all.start_ns <= all.end_ns ? std::optional(all) : std::nullopt;
}

/// How far two records are from overlapping; 0: they do.
std::int64_t distance(const Span& a, const Span& b) {
  return std::max<std::int64_t>(0, std::max(a.start_ns, b.start_ns) - std::min(a.end_ns, b.end_ns));
}

void require_one_time(const RankActivity& first, const RankActivity& other) {
  const auto a = recorded_span_or_none(first), b = recorded_span_or_none(other);
  if (!a || !b || std::min(a->start_ns, b->start_ns) < kFirstEpoch) return;
  if (const std::int64_t apart = distance(*a, *b); apart > kMostApart)
    throw InputError(
        other.source,
        fmt::format("expected the same steps as {}, found a record {} apart from it, which is of "
                    "another run or of other steps; give the traces of one run, of the same steps",
                    first.source, format_time(static_cast<double>(apart) * 1e-9)));
}

using Sizes = std::multiset<std::pair<CommOp, std::int64_t>>;

/// By number of the step; synchronising collectives over the whole job whose size is known.
std::map<std::int64_t, Sizes> exchanged(const RankActivity& r, int world_size) {
  std::map<std::int64_t, Sizes> steps;
  for (const Communication& c : r.communications)
    if (c.step >= 0 && carries_gradients(c.op) && c.bytes > 0 && !c.deduced &&
        (c.group_size < 0 || c.group_size == world_size))
      steps[r.steps[to_index(c.step)].number].insert({c.op, c.bytes});
  return steps;
}

void require_same_exchanges(const RankActivity& first, const RankActivity& other, int world_size) {
  const auto mine = exchanged(first, world_size), theirs = exchanged(other, world_size);
  bool any = false;
  for (const auto& [number, sizes] : mine) {
    const auto same = theirs.find(number);
    if (same == theirs.end()) continue;
    any = true;
    // A trace may begin or end inside a step, but what both have is of equal sizes.
    for (const auto& s : sizes)
      if (same->second.contains(s)) return;
  }
  if (any)
    throw InputError(other.source,
                     fmt::format("exchanged no size that {} did in the same steps, so these are "
                                 "traces of two jobs; give the traces of one job",
                                 first.source));
}

}  // namespace

void require_one_job(const Job& job) {
  for (std::size_t r = 1; r < job.ranks.size(); ++r) {
    require_one_time(job.ranks.front(), job.ranks[r]);
    require_same_exchanges(job.ranks.front(), job.ranks[r], job.world_size);
  }
}

}  // namespace linerate::trace
