// The public class KFAC: it registers the layers, passes views of the loss to the collector, and
// makes a step. In DataParallel the step is a shared one, which KfacInside::share() puts in place
// of the step of one rank. The options are completed and checked here, too.
#include "linerate/kfac/kfac.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/kfac/counted_positions.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/operator_input.hpp"
#include "linerate/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {

struct KFAC::Impl {
  Impl(Registration registration, std::vector<at::Tensor> parameters, const KfacOptions& options)
      : report(std::move(registration.report)),
        pre(registration.layers, std::move(parameters), options) {}

  /// Runs a backward pass from the output with this gradient, if factors are due.
  template <typename Gradient>
  void pass_back(const at::Tensor& output, Gradient&& gradient) {
    if (pre.options().fisher != Fisher::monte_carlo)
      throw UsageError(
          "K-FAC: sample_fisher() needs the option `fisher` set to the Monte Carlo estimate");
    const c10::NoGradGuard no_grad;
    if (pre.factors_due()) pre.collector().backward_from(output, {gradient()});
  }

  std::vector<RegisteredLayer> report;
  Preconditioner pre;
  std::function<KfacStep()> shared_step;
};

KFAC::KFAC(torch::nn::Module& model, KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(model, options), model.parameters(), options)) {}

KFAC::KFAC(const std::vector<LayerSpec>& layers, const std::vector<at::Tensor>& parameters,
           KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(layers, options), parameters, options)) {}

KFAC::~KFAC() = default;

const std::vector<RegisteredLayer>& KFAC::registration_report() const { return impl_->report; }
Preconditioner& KfacInside::preconditioner(const KFAC& kfac) { return kfac.impl_->pre; }
void KfacInside::share(KFAC& kfac, std::function<KfacStep()> step) {
  kfac.impl_->shared_step = std::move(step);
}
KfacMemory KFAC::memory_usage() const { return impl_->pre.memory(); }

void KFAC::loss_of(const at::Tensor& output, const LossView& view) {
  loss_of(output, at::Tensor(), view);
}
void KFAC::loss_of(const at::Tensor& output, const at::Tensor& target, const LossView& view) {
  Collector& collector = impl_->pre.collector();
  const KfacOptions& options = impl_->pre.options();
  const ReadLoss read = read_loss(output, target, view, *options.loss_average, collector.counted());
  if (target.defined()) {
    if (read.counted.given() && options.shared_positions == SharedPositions::reduce)
      throw UsageError(
          "K-FAC: loss_of(): some targets do not count, and shared_positions = reduce joins "
          "positions; use expand");
    collector.note_targets(read.counted);
  }
  collector.loss_of(read.output);
}
void KFAC::count_only(const at::Tensor& counted) {
  if (impl_->pre.options().shared_positions == SharedPositions::reduce && counted.dim() > 1)
    throw UsageError(
        "K-FAC: count_only() chooses positions, and shared_positions = reduce joins them; use "
        "expand");
  impl_->pre.collector().count_only(counted);
}
void KFAC::set_loss_terms(double terms) { impl_->pre.collector().set_terms(terms); }

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, std::int64_t first_sample) {
  impl_->pass_back(output, [&] {
    const LabelDraw draw{impl_->pre.options().seed, impl_->pre.step(), first_sample};
    return sampled_gradient(output, loss, draw);
  });
}

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, const at::Tensor& labels) {
  impl_->pass_back(output, [&] { return labelled_gradient(output, loss, labels); });
}

KfacStep KFAC::step() { return impl_->shared_step ? impl_->shared_step() : impl_->pre.take(); }

KFAC::Pause::Pause(KFAC& owner) : owner_(owner) { owner_.impl_->pre.collector().pause(true); }
KFAC::Pause::~Pause() { owner_.impl_->pre.collector().pause(false); }

KfacState KFAC::save() const { return impl_->pre.save(); }
void KFAC::load(const KfacState& state) {
  impl_->pre.load(state, [](std::size_t) { return Preconditioner::Holds::inverses; });
}

// Options, from three sources. One that the program set wins over the strategy's, and that over the
// default.

const std::vector<TunedOption>& tuned_options() {
  using Text = const plan::Kfac&;
  using Number = std::optional<double>;
  const auto steps = [](std::int64_t n) { return Number(static_cast<double>(n)); };
  static const std::vector<TunedOption> all = {
      {"accumulate", "accumulate", &KfacOptions::accumulate, false,
       [=](Text t) { return t.accumulate ? steps(*t.accumulate) : Number(); }},
      {"factors", "factor_interval", &KfacOptions::factor_interval, true,
       [=](Text t) { return steps(t.factor_interval); }},
      {"inverses", "inverse_interval", &KfacOptions::inverse_interval, true,
       [=](Text t) { return steps(t.inverse_interval); }},
      {"damping", "damping", &KfacOptions::damping, false, [](Text t) { return t.damping; }},
      {"decay", "decay", &KfacOptions::decay, false, [](Text t) { return t.decay; }},
      {"kl", "kl_clip", &KfacOptions::kl_clip, false, [](Text t) { return t.clips ? t.kl : 0; }}};
  return all;
}

void fill_tuned(KfacOptions& options, const plan::Kfac& kfac, bool intervals) {
  for (const TunedOption& one : tuned_options())
    if ((intervals || !one.in_plan) && !(options.*one.value))
      if (const std::optional<double> given = one.in_text(kfac)) options.*one.value = *given;
}

KfacOptions planned_options(const plan::Kfac& kfac) {
  KfacOptions options;
  if (kfac.eigen) options.method = InverseMethod::eigen;
  if (kfac.samples_labels) options.fisher = Fisher::monte_carlo;
  fill_tuned(options, kfac, /*intervals=*/true);
  options.conv_subsampling = kfac.subsample;
  options.norms = kfac.norms;
  options.embeddings = kfac.embeddings;
  options.largest_factor = kfac.largest;
  return options;
}

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
  fill_intervals(o);
  fill_tuned(o, {}, /*intervals=*/false);
  return o;
}

KfacOptions checked_options(const KfacOptions& given) {
  KfacOptions o = with_defaults(given);
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
  return o;
}

}  // namespace linerate::torch_adapter
