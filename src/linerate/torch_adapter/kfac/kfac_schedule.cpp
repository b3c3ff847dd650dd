// The part of K-FAC that follows from options and the number of the step: whether factors and
// inverses are due, the damping, the learning rate. An option that the program set wins over the
// strategy's, and that over the default. So the options as set (`said_`) are kept, and adopt()
// begins from them again for each Plan.
#include "linerate/torch_adapter/kfac/kfac_schedule.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/collector.hpp"

namespace linerate::torch_adapter {
namespace {

void check_options(const KfacOptions& o) {
  if (!o.loss_average)
    throw UsageError(
        "K-FAC: loss_average is not set; give what the loss divides its sum by, such as "
        "LossAverage{LossAverage::Over::batch} for a mean over samples");
  if (!o.learning_rate && !o.optimizer && o.kl_clip->at(0) > 0)
    throw UsageError(
        "K-FAC: neither optimizer nor learning_rate is set. The KL clip needs the optimizer, or "
        "its rate as a function of the step; without them set kl_clip = 0");
  if (o.conv_subsampling < 1 ||
      (o.conv_subsampling > 1 && o.shared_positions == SharedPositions::reduce))
    throw UsageError(
        fmt::format("K-FAC: conv_subsampling = {}: expected 1 or, with expanded positions, more",
                    o.conv_subsampling));
  if (o.max_failures < 1) throw UsageError("K-FAC: max_failures: expected 1 or more");
  if (o.accumulate && o.accumulate->constant().value_or(1) < 1)
    throw UsageError(
        fmt::format("K-FAC: accumulate = {}: expected 1 backward pass in a step or more",
                    *o.accumulate->constant()));
}

/// Example: an interval of 10 is due in steps 0, 10 and 20.
bool is_due(const ScheduledValue& interval, std::int64_t step) {
  const auto steps = static_cast<std::int64_t>(interval.at(step));
  if (steps < 1)
    throw UsageError(fmt::format("K-FAC: an interval of {} steps in step {}: expected 1 or more",
                                 interval.at(step), step));
  return step % steps == 0;
}

}  // namespace

KfacSchedule::KfacSchedule(KfacOptions options)
    : said_(std::move(options)), options_(with_defaults(said_)), optimizer_(options_.optimizer) {
  check_options(options_);
}

void KfacSchedule::adopt(const plan::Kfac& kfac) {
  KfacOptions all = said_;  // intervals are those of the Plan's schedule
  if (!all.damping) all.damping = kfac.damping;
  if (!all.decay) all.decay = kfac.decay;
  if (!all.kl_clip) all.kl_clip = kfac.clips ? kfac.kl : 0.0;
  if (!all.accumulate && kfac.accumulate) all.accumulate = static_cast<double>(*kfac.accumulate);
  all = with_defaults(std::move(all));
  check_options(all);
  options_ = std::move(all);
}

void KfacSchedule::forget_strategy() { options_ = with_defaults(said_); }

bool KfacSchedule::factors_due() const {
  return schedule_ ? schedule_(step_).factors : is_due(*options_.factor_interval, step_);
}
bool KfacSchedule::inverses_due() const {
  return schedule_ ? schedule_(step_).inverses : is_due(*options_.inverse_interval, step_);
}

/// Factors are means over the passes of a step, if each loss was divided by their number. A program
/// that accumulates without saying so gets factors of another scale. It is warned once, but not if
/// the options show that the scale is right.
void KfacSchedule::warn_of_passes(int passes) {
  const double expected = accumulated();
  if (passes == 0 || passes == expected || warned_passes_) return;
  const bool scale_says_it =
      std::abs(options_.loss_scale.constant().value_or(0) * passes - 1) < 1e-9;
  const bool is_sum = options_.loss_average->over == LossAverage::Over::sum;
  const bool is_drawn = options_.fisher != Fisher::empirical;  // a draw has no scale
  if (!options_.accumulate && (scale_says_it || is_sum || is_drawn)) return;
  warned_passes_ = true;
  log::warning(fmt::format(
      "K-FAC: step {}: found {} backward passes, expected {}: {} (said once)", step_, passes,
      options_.accumulate ? fmt::format("accumulate={}", expected)
                          : "1, as accumulate= is not said",
      options_.accumulate ? fmt::format("factors are right if each loss is divided by {}", expected)
                          : fmt::format("if each loss is divided by {0}, give accumulate={0}, as "
                                        "an option or in the strategy's kfac(...). Without the "
                                        "division the factors are those of the mean of the losses",
                                        passes)));
}

double KfacSchedule::rate() const {
  return options_.learning_rate ? options_.learning_rate(step_) : rate_of(*optimizer_);
}

/// The KL clip bounds one step's direction by the rate of that step. A momentum of earlier
/// directions is multiplied by the rate of now. If the rate rises, the bound would not hold for it.
/// So momentum is scaled down, or the program is warned if the optimizer is not known.
void KfacSchedule::bound_update(const Blocks& blocks) {
  if (!(optimizer_ || options_.learning_rate)) return;
  const double now = rate(), before = std::exchange(last_rate_, now);
  if (options_.kl_clip->at(step_) <= 0) return;
  if (optimizer_) return bound_momentum(*optimizer_, blocks, before, now);
  if (!(before > 0 && now > before) || std::exchange(warned_unbound_, true)) return;
  log::warning(fmt::format(
      "K-FAC: step {}: the learning rate has risen from {:g} to {:g}. Momentum carries earlier "
      "directions along, and the clip does not hold for these unless K-FAC knows the optimizer",
      step_, before, now));
}

KfacOptions planned_options(const plan::Kfac& kfac) {
  KfacOptions options;
  if (kfac.eigen) options.method = InverseMethod::eigen;
  if (kfac.samples_labels) options.fisher = Fisher::monte_carlo;
  options.factor_interval = static_cast<double>(kfac.factor_interval);
  options.inverse_interval = static_cast<double>(kfac.inverse_interval);
  if (kfac.accumulate) options.accumulate = static_cast<double>(*kfac.accumulate);
  options.damping = kfac.damping;
  options.decay = kfac.decay;
  options.kl_clip = kfac.clips ? kfac.kl : 0.0;
  options.conv_subsampling = kfac.subsample;
  options.norms = kfac.norms;
  options.embeddings = kfac.embeddings;
  options.largest_factor = kfac.largest;
  return options;
}

}  // namespace linerate::torch_adapter
