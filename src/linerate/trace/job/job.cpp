#include "linerate/trace/job/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "linerate/doc/scaling_factor.hpp"

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
// next start. Kineto's phases and those of Timelines are filled in here (kineto/kineto_job.cpp,
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

}  // namespace linerate::trace
