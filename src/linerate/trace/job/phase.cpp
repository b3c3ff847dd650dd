// Work is visited by start. `before` is the span that ended last, so a gap is from its end to the
// next start. Kineto's phases and those of Timelines are filled in here (kineto/phases.cpp,
// timeline/timeline_job.cpp).
#include "linerate/trace/job/phase.hpp"

#include <algorithm>

namespace linerate::trace {
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
  switch (before.phase) {
    case StepPhase::data_loading:
    case StepPhase::backward:
      return next.phase;
    case StepPhase::optimizer: {
      const auto after =
          std::upper_bound(step_starts.begin(), step_starts.end(), before.span.start_ns);
      return after != step_starts.begin() && others_ns < *(after - 1) ? next.phase : before.phase;
    }
    default:
      return before.phase;
  }
}

}  // namespace

std::vector<PhaseSpan> with_pauses(std::vector<PhaseSpan> work,
                                   const std::vector<std::int64_t>& step_starts) {
  std::sort(work.begin(), work.end(), [](const PhaseSpan& a, const PhaseSpan& b) {
    return a.span.start_ns < b.span.start_ns;
  });
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

}  // namespace linerate::trace
