#include "linerate/torch_adapter/kfac/kfac_options.hpp"

#include "linerate/plan/kfac/kfac.hpp"

#include <cmath>

namespace linerate::torch_adapter {
namespace {

/// An interval as a number of steps; absent if there is none, or if it changes with the step.
std::optional<std::int64_t> steps_of(const std::optional<ScheduledValue>& interval) {
  const std::optional<double> steps = interval ? interval->constant() : std::nullopt;
  return steps ? std::optional<std::int64_t>(std::llround(*steps)) : std::nullopt;
}

void fill_intervals(KfacOptions& o) {
  const bool changes = (o.factor_interval && !o.factor_interval->constant()) ||
                       (o.inverse_interval && !o.inverse_interval->constant());
  if (changes) {  // the one that is absent goes with the other
    if (!o.factor_interval) o.factor_interval = o.inverse_interval;
    if (!o.inverse_interval) o.inverse_interval = o.factor_interval;
    return;
  }
  const plan::Intervals known =
      plan::intervals_of(steps_of(o.factor_interval), steps_of(o.inverse_interval));
  if (!o.factor_interval) o.factor_interval = static_cast<double>(known.factors);
  if (!o.inverse_interval) o.inverse_interval = static_cast<double>(known.inverses);
}

}  // namespace

KfacOptions with_defaults(KfacOptions o) {
  const plan::Kfac known;
  fill_intervals(o);
  if (!o.damping) o.damping = known.damping;
  if (!o.decay) o.decay = known.decay;
  if (!o.kl_clip) o.kl_clip = known.kl;
  return o;
}

}  // namespace linerate::torch_adapter
