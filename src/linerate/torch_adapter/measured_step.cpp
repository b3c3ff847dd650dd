// Turns the moments of one measured step into the times that replan works with. resolve() replaces
// the numbers of marks by times, once the device has passed them. times_of() takes out of the times
// all that another plan would place elsewhere.
#include "linerate/torch_adapter/measured_step.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/kfac/curvature_times.hpp"

namespace linerate::torch_adapter {
namespace {

double seconds_between(std::int64_t from_ns, std::int64_t until_ns) {
  return static_cast<double>(until_ns - from_ns) * 1e-9;
}

/// The seconds of each factor's inverse. Factors that were inverted together share their time
/// equally.
std::vector<double> inverse_seconds(const std::vector<TimedInverses>& inverses,
                                    std::size_t blocks) {
  std::vector<double> seconds(2 * blocks, -1);
  for (const TimedInverses& some : inverses)
    for (const std::int32_t factor : some.factors)
      seconds[to_index(factor)] = seconds_between(some.took.start_ns, some.took.end_ns) /
                                  static_cast<double>(some.factors.size());
  return seconds;
}

}  // namespace

void resolve(MeasuredStep& step, std::span<const std::int64_t> times_ns) {
  const auto put = [&](std::int64_t& moment) {
    if (moment >= 0) moment = times_ns[to_index(moment)];
  };
  for (std::int64_t* const moment : {&step.begin, &step.first_gradient, &step.end}) put(*moment);
  for (std::int64_t& moment : step.gradients) put(moment);
  for (Span& span : step.held) put(span.start_ns), put(span.end_ns);
  for (FactorSpan& span : step.factors) put(span.start_ns), put(span.end_ns);
  for (TimedInverses& some : step.inverses) put(some.took.start_ns), put(some.took.end_ns);
}

/// Takes out of the times what another plan would move. Ready times lose the factors that were
/// computed before them, since the planner has those as tasks of their own. The time before the
/// first gradient loses the waits for means of the step before.
///
/// An example in ms. The step begins at 0 and waits from 1 to 3 for a mean. Its first gradient
/// comes at 10 and its last at 20, and from 12 to 15 it computes a factor. Then `before_s` is 8 ms,
/// and the last gradient is ready 7 ms after the first.
replan::StepTimes times_of(const MeasuredStep& step, std::size_t blocks) {
  replan::StepTimes times;
  times.update = step.update;
  const bool has_factors = blocks > 0 && step.update.factors;
  const std::int64_t first = step.first_gradient;
  for (const std::int64_t ready : step.gradients) {
    double ready_s = ready < 0 ? -1 : seconds_between(first, ready);
    if (ready >= 0 && has_factors)
      ready_s = std::max(0.0, ready_s - factors_between_s(step.factors, first, ready));
    times.ready_s.push_back(ready_s);
  }
  if (step.begin >= 0) times.step_s = seconds_between(step.begin, step.end);
  if (step.begin >= 0 && first >= 0) {
    times.before_s = seconds_between(step.begin, first);
    for (const Span& span : step.held)
      times.before_s -= seconds_between(span.start_ns, span.end_ns);
    times.before_s = std::max(times.before_s, 0.0);
  }
  if (has_factors)
    times.curvature = curvature_times(step.factors, blocks, inverse_seconds(step.inverses, blocks));
  return times;
}

}  // namespace linerate::torch_adapter
