// The public class KFAC: it registers the layers, passes views of the loss to the collector, and
// makes a step. In DataParallel the step is a shared one, which KfacInside::share() puts in place
// of the step of one rank.
#include "linerate/kfac/kfac.hpp"

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

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

}  // namespace linerate::torch_adapter
