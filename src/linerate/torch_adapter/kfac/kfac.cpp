#include "linerate/torch_adapter/kfac/kfac.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/curvature_step.hpp"
#include "linerate/torch_adapter/kfac/kfac_inside.hpp"
#include "linerate/torch_adapter/kfac/loss_curvature.hpp"
#include "linerate/torch_adapter/kfac/registration.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

struct KFAC::Impl {
  Impl(Registration registration, std::vector<at::Tensor> parameters, const KfacOptions& options)
      : report(std::move(registration.report)),
        pre(registration.layers, options),
        second_order(pre, std::move(parameters)) {}

  /// From the output with these columns, if factors are due.
  template <typename Columns>
  void pass_back(Fisher fisher, const char* call, const at::Tensor& output, Columns&& columns) {
    if (pre.options().fisher != fisher)
      throw UsageError(fmt::format("K-FAC: {} needs the option `fisher` to say so", call));
    const c10::NoGradGuard no_grad;
    if (pre.factors_due()) pre.collector().backward_from(output, columns());
  }

  std::vector<RegisteredLayer> report;
  Preconditioner pre;
  CurvatureStep second_order;
  std::function<KfacStep()> shared_step;
};

KFAC::KFAC(torch::nn::Module& model, KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(model, options),
                                   tensors_of(named_parameters(model)), options)) {}

KFAC::KFAC(const std::vector<LayerSpec>& layers, const std::vector<at::Tensor>& parameters,
           KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(layers, options), parameters, options)) {}

KFAC::~KFAC() = default;

const std::vector<RegisteredLayer>& KFAC::registration_report() const { return impl_->report; }
Preconditioner& KfacInside::preconditioner(const KFAC& kfac) { return kfac.impl_->pre; }
CurvatureStep& KfacInside::curvature_step(const KFAC& kfac) { return kfac.impl_->second_order; }
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
          "K-FAC: loss_of(): targets that do not count: shared_positions = reduce joins positions; "
          "use expand");
    collector.note_targets(read.counted);
  }
  collector.loss_of(read.output);
  if (LmUpdate* const lm = impl_->pre.lm(); lm && view.loss)
    lm->set_loss(read.output, *view.loss, impl_->pre.accumulated());
}
void KFAC::count_only(const at::Tensor& counted) {
  if (impl_->pre.options().shared_positions == SharedPositions::reduce && counted.dim() > 1)
    throw UsageError(
        "K-FAC: count_only() of positions: shared_positions = reduce joins them; use expand");
  impl_->pre.collector().count_only(counted);
}
void KFAC::set_loss_terms(double terms) { impl_->pre.collector().set_terms(terms); }

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, std::int64_t first_sample) {
  impl_->pass_back(Fisher::monte_carlo, "sample_fisher()", output, [&] {
    const LabelDraw draw{impl_->pre.options().seed, impl_->pre.step(), first_sample};
    return std::vector{sampled_gradient(output, loss, draw)};
  });
}

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, const at::Tensor& labels) {
  impl_->pass_back(Fisher::monte_carlo, "sample_fisher()", output,
                   [&] { return std::vector{labelled_gradient(output, loss, labels)}; });
}

void KFAC::exact_fisher(const at::Tensor& output, LossKind loss) {
  impl_->pass_back(Fisher::exact, "exact_fisher()", output,
                   [&] { return hessian_columns(output, loss); });
}

void KFAC::loss_of(const at::Tensor& output, LossKind loss) {
  loss_of(output, LossView{.loss = loss});
}

KfacStep KFAC::step() {
  return impl_->shared_step ? impl_->shared_step() : impl_->second_order.take();
}

KfacStep KFAC::step(const at::Tensor& output, LossKind loss) {
  LmUpdate* const lm = impl_->pre.lm();
  if (!lm) throw UsageError("K-FAC: step(output, loss) needs the option levenberg_marquardt");
  // Not that of a batch without a step. Several passes have each shown theirs.
  const double passes = impl_->pre.accumulated();
  if (!impl_->shared_step && (passes == 1 || !lm->has_loss())) lm->set_loss(output, loss, passes);
  return step();
}

struct KFAC::Pause::Impl {
  explicit Impl(Collector& collector) : pause(collector) {}
  Collector::Pause pause;
};
KFAC::Pause::Pause(KFAC& owner) : impl_(std::make_unique<Impl>(owner.impl_->pre.collector())) {}
KFAC::Pause::~Pause() = default;

bool KFAC::wants_loss() const {
  const LmUpdate* const lm = impl_->pre.lm();
  return lm && lm->awaits_change() &&
         impl_->pre.step() % impl_->pre.options().levenberg_marquardt->every == 0;
}

void KFAC::observe_loss(double before, double after) {
  observe_loss(c10::scalar_to_tensor(before), c10::scalar_to_tensor(after));
}

void KFAC::observe_loss(const at::Tensor& before, const at::Tensor& after) {
  const c10::NoGradGuard no_grad;
  LmUpdate* const lm = impl_->pre.lm();
  if (!lm) throw UsageError("K-FAC: observe_loss() needs the option levenberg_marquardt");
  if (!lm->awaits_change()) return;
  for (const at::Tensor& loss : {before, after})
    if (loss.numel() != 1)
      throw UsageError(fmt::format(
          "K-FAC: observe_loss(): expected a loss of one element, found {}", loss.numel()));
  const at::Tensor change = after.sum(at::kDouble) - before.sum(at::kDouble);
  if (impl_->shared_step)
    lm->note_change(change);
  else
    lm->observe(change);
}

KfacState KFAC::save() const { return impl_->pre.save(); }
void KFAC::load(const KfacState& state) {
  impl_->pre.load(state, [](std::size_t) { return Preconditioner::Holds::inverses; });
}

}  // namespace linerate::torch_adapter
