#include "linerate/trace/job/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {

std::int32_t group_index(Job& job, const std::string& group) {
  const auto at = std::ranges::find(job.groups, group) - job.groups.begin();
  if (at == std::ssize(job.groups)) job.groups.push_back(group);
  return static_cast<std::int32_t>(at);
}

void sort_by_start(std::vector<Communication>& communications) {
  std::ranges::stable_sort(communications, {},
                           [](const Communication& c) { return c.span.start_ns; });
}

std::vector<std::size_t> in_order_of_issue(const RankActivity& rank) {
  const std::vector<Communication>& all = rank.communications;
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::ranges::all_of(all, [](const Communication& c) { return c.issued >= 0; }))
    std::ranges::stable_sort(
        order, [&all](std::size_t a, std::size_t b) { return all[a].issued < all[b].issued; });
  return order;
}

std::string StepSpan::label() const {
  return marks.empty() ? std::to_string(number)
                       : std::to_string(number) + "-" + std::to_string(marks.back().number);
}

/// If times of the device are unknown, a step lasts until the mark of the next one, if that follows
/// in number. A loader works between two marks, and its time belongs to the step before it.
std::vector<Span> windows_of_steps(const RankActivity& rank) {
  std::vector<Span> windows;
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    const StepSpan& step = rank.steps[i];
    const bool followed =
        i + 1 < rank.steps.size() && rank.steps[i + 1].number == step.next_number();
    windows.push_back(step.on_device.value_or(doc::window_of_step(
        step.span, followed ? std::optional(rank.steps[i + 1].span) : std::nullopt)));
  }
  return windows;
}

// Work is visited by start. `before` is the span that ended last, so a gap is from its end to the
// next start. Kineto's phases and those of Timelines are filled in here (kineto/phases.cpp,
// timeline/timeline_job.cpp).

namespace {

/// Collects spans in order. A span that begins before the end of the last one loses the common
/// part, and neighbours of one phase become one span.
class Partition {
 public:
  void add(Span span, StepPhase phase) {
    if (!out_.empty()) span.start_ns = std::max(span.start_ns, out_.back().span.end_ns);
    if (span.length() <= 0) return;
    if (!out_.empty() && out_.back().phase == phase && out_.back().span.end_ns == span.start_ns)
      out_.back().span.end_ns = span.end_ns;
    else
      out_.push_back({span, phase});
  }
  std::vector<PhaseSpan> take() { return std::move(out_); }

 private:
  std::vector<PhaseSpan> out_;
};

/// The phase of the pause after `before`, within one step. `others_ns`: when work that is not the
/// optimizer's last began. If that was before the step began, the optimizer opens the step.
StepPhase owner_of_pause(const PhaseSpan& before, const PhaseSpan& next, std::int64_t others_ns,
                         const std::vector<std::int64_t>& step_starts) {
  const auto after = std::upper_bound(step_starts.begin(), step_starts.end(), before.span.start_ns);
  const bool opens_step = before.phase == StepPhase::optimizer && after != step_starts.begin() &&
                          others_ns < *(after - 1);
  const bool is_over =
      before.phase == StepPhase::data_loading || before.phase == StepPhase::backward;
  return opens_step || is_over ? next.phase : before.phase;
}

}  // namespace

std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                   const std::vector<std::int64_t>& step_starts) {
  std::ranges::sort(work, {}, [](const PhaseSpan& p) { return p.span.start_ns; });
  Partition all;
  const PhaseSpan* before = nullptr;  // the one that ended last
  std::int64_t others_ns = INT64_MIN;
  for (const PhaseSpan& now : work) {
    if (before != nullptr && now.span.start_ns > before->span.end_ns) {
      const std::int64_t from = before->span.end_ns, to = now.span.start_ns;
      const auto step = std::lower_bound(step_starts.begin(), step_starts.end(), from);
      const std::int64_t border = step == step_starts.end() ? to : std::min(*step, to);
      const bool next_step = border < to;  // then the pause closes the step before
      all.add({from, border}, next_step && before->phase == StepPhase::backward
                                  ? before->phase
                                  : owner_of_pause(*before, now, others_ns, step_starts));
      all.add({border, to},
              now.phase == StepPhase::data_loading ? now.phase : StepPhase::between_steps);
    }
    all.add(now.span, now.phase);
    if (now.phase != StepPhase::optimizer) others_ns = now.span.start_ns;
    if (before == nullptr || now.span.end_ns >= before->span.end_ns) before = &now;
  }
  return all.take();
}

/// The factor turns a size into the bytes that the busiest link must carry. In a ring all-reduce
/// each of three ranks sends two thirds of the buffer to reduce it and two thirds to spread it:
/// 4/3. A reduce-scatter or an all-gather is one half of that. A broadcast or a send carries the
/// buffer once.
std::optional<double> bus_factor(CommOp op, int ranks) {
  if (ranks < 1 || op == CommOp::barrier || op == CommOp::unknown) return std::nullopt;
  const double n = ranks;
  if (op == CommOp::all_reduce) return 2 * (n - 1) / n;
  const bool parts = op == CommOp::reduce_scatter || op == CommOp::all_gather ||
                     op == CommOp::all_to_all || op == CommOp::gather || op == CommOp::scatter;
  return parts ? (n - 1) / n : 1;
}

// Two checks against files that were collected by mistake: of another run of the job (other times),
// and of another job (other sizes). One common size in one common step is enough, because a trace
// may begin or end inside a step.

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
