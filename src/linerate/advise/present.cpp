// The strategy in use, where a step of it was measured. A prediction that misses the job's own step
// is worth little for other strategies, so the advice says so before anything else.
#include "linerate/advise/present.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

// An error of the prediction that is below this share of the fastest strategy's gain cannot turn
// the advice around.
constexpr double kShareOfGain = 0.25;

// How far the measured step lies outside the interval; 0 if it lies inside.
double outside_s(double measured_s, const doc::Bounded& step) {
  return std::max({0.0, step.low_or_value() - measured_s, measured_s - step.high_or_value()});
}

// Whether the prediction misses the measured step: it lies outside the interval, by more than a
// quarter of what the fastest candidate gains. Without an interval it misses if it is off by more
// than that gain, because then the gain means nothing. An example: predicted 100 ms, measured
// 106 ms, the fastest predicted 95 ms. It is off by 6 ms for a gain of 5 ms, so it misses.
bool misses(double measured_s, const doc::Bounded& step, const doc::Candidate& fastest) {
  const double gain_s = fastest.target_s ? std::max(0.0, step.value - fastest.target_s->value) : 0;
  if (step.low || step.high) return outside_s(measured_s, step) > kShareOfGain * gain_s;
  return std::abs(measured_s - step.value) > gain_s;
}

// "Present strategy ddp: measured 106 ms, predicted 100 ms (95 .. 104).", and what follows if the
// prediction misses.
std::string in_words(const doc::Advice& a, const doc::Bounded& step, bool is_known) {
  std::string predicted = format_time(step.value);
  if (step.has_interval())
    predicted += fmt::format(" ({} .. {})", format_time(*step.low), format_time(*step.high));
  const std::string measured = format_time(*a.measured_step_s);
  if (!is_known)
    return fmt::format(
        "No strategy of linerate's is known to exchange as the job does. The others are compared "
        "with its step as recorded, {}, and no prediction of that step can be checked.",
        measured);
  std::string text = fmt::format("Strategy in use, {}: measured {}, predicted {}.", a.current,
                                 measured, predicted);
  if (a.confidence == doc::Confidence::low)
    text +=
        " The measured step lies outside the prediction, so do not trust what follows. Either the "
        "Cluster describes another network or load, or the job does something that its Workload "
        "does not say.";
  else if (step.has_interval() && outside_s(*a.measured_step_s, step) > 0)
    text += fmt::format(
        " The measured step lies outside the interval by {}, less than a quarter of what the "
        "fastest strategy gains.",
        format_time(outside_s(*a.measured_step_s, step)));
  return text;
}

}  // namespace

// Only of the network and the ranks that the job ran on. Of another bandwidth nothing was measured.
const doc::RecordedStep* measured_step(const Evaluator& evaluator, const AdviseOptions& options) {
  const auto& recorded = evaluator.workload().recorded;
  const bool so =
      recorded && recorded->ranks == evaluator.ranks() && !options.bandwidth && !options.latency;
  return so ? &*recorded : nullptr;
}

// A message that hides under computation may slow that computation, and nobody measured by how
// much. The bound is the communication that is hidden. It is the larger of two figures:
// communication less its exposed part, and the time that overlap saves over computing and sending
// in turn. The second one counts if ranks are late, because waiting for them is exposed and hides
// nothing.
std::optional<double> unmeasured_messages_s(const doc::Candidate& c, const Evaluator& evaluator) {
  const auto& recorded = evaluator.workload().recorded;
  const auto& contention = evaluator.cluster().contention;
  if (!recorded || !recorded->on_cpu || (contention && contention->message_s > 0) ||
      !c.communication_s)
    return std::nullopt;
  const double one_after_the_other_s = slowest_rank_s(evaluator).value + *c.communication_s;
  return std::max({0.0, *c.communication_s - c.exposed_communication_s.value_or(0),
                   one_after_the_other_s - c.step_s->value});
}

// A candidate without a prediction: the job's own exchange, which is none of linerate's. Others are
// compared with its measured step.
std::optional<doc::Candidate> as_recorded(const Evaluator& evaluator,
                                          const AdviseOptions& options) {
  const doc::RecordedStep* measured = measured_step(evaluator, options);
  if (options.current_is_known || !measured) return std::nullopt;
  doc::Candidate c;
  c.strategy = "the exchange as recorded";
  c.step_s = c.target_s = doc::Bounded{measured->step_s};
  return c;
}

void compare_present(doc::Advice& a, const doc::Candidate& in_use, const doc::Candidate& fastest,
                     const Evaluator& evaluator, const AdviseOptions& options) {
  const doc::RecordedStep* measured = measured_step(evaluator, options);
  if (!measured) return;
  a.measured_step_s = measured->step_s;
  if (options.current_is_known)
    a.confidence = misses(*a.measured_step_s, *in_use.step_s, fastest) ? doc::Confidence::low
                                                                       : doc::Confidence::checked;
  a.present = in_words(a, *in_use.step_s, options.current_is_known);
}

}  // namespace linerate::advise
