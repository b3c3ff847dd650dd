#include "linerate/advise/present.hpp"

#include <fmt/format.h>

#include <cmath>

#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

bool misses(double measured_s, const doc::Bounded& step, const doc::Candidate& fastest) {
  if (step.low || step.high)
    return measured_s < step.low_or_value() || measured_s > step.high_or_value();
  const double gain_s = fastest.target_s ? step.value - fastest.target_s->value : 0;
  return std::abs(measured_s - step.value) > std::max(0.0, gain_s);
}

bool was_measured_so(const Evaluator& evaluator, const AdviseOptions& options) {
  const auto& recorded = evaluator.workload().recorded;
  return recorded && recorded->ranks == evaluator.ranks() && !options.bandwidth && !options.latency;
}

std::string in_words(const doc::Advice& a, const doc::Bounded& step, bool is_known) {
  std::string predicted = format_time(step.value);
  if (step.has_interval())
    predicted += fmt::format(" ({} .. {})", format_time(*step.low), format_time(*step.high));
  const std::string measured = format_time(*a.measured_step_s);
  if (!is_known)
    return fmt::format(
        "No strategy of linerate's is known to exchange as the job does: others are compared with "
        "its step as recorded, {}, and no prediction of it could be held against that.",
        measured);
  return fmt::format("Present strategy {}: measured {}, predicted {}.", a.current, measured,
                     predicted) +
         (a.confidence == doc::Confidence::low
              ? " The prediction misses what was measured, so what follows is not to be trusted: "
                "the Cluster is of another network or another load, or the job does what its "
                "Workload does not say."
              : "");
}

}  // namespace

std::optional<doc::Candidate> as_recorded(const Evaluator& evaluator,
                                          const AdviseOptions& options) {
  if (options.current_is_known || !was_measured_so(evaluator, options)) return std::nullopt;
  doc::Candidate c;
  c.strategy = "the exchange as recorded";
  c.step_s = c.target_s = doc::Bounded{evaluator.workload().recorded->step_s};
  return c;
}

void compare_present(doc::Advice& a, const doc::Candidate& in_use, const doc::Candidate& fastest,
                     const Evaluator& evaluator, const AdviseOptions& options) {
  if (!was_measured_so(evaluator, options)) return;
  a.measured_step_s = evaluator.workload().recorded->step_s;
  if (options.current_is_known)
    a.confidence = misses(*a.measured_step_s, *in_use.step_s, fastest) ? doc::Confidence::low
                                                                       : doc::Confidence::checked;
  a.present = in_words(a, *in_use.step_s, options.current_is_known);
}

}  // namespace linerate::advise
