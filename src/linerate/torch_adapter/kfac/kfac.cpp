#include "linerate/torch_adapter/kfac/kfac.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/loss_curvature.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/kfac/registration.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {
namespace {

std::vector<at::Tensor> parameters_of(torch::nn::Module& model) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named_parameters(model)) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

struct KFAC::Impl {
  Impl(Registration registration, std::vector<at::Tensor> all, const KfacOptions& options);

  KfacStep take_step();
  KfacStep update_curvature();
  /// For every layer with inverses and a gradient; names those that lack an inverse.
  std::vector<std::optional<Preconditioner::Direction>> directions(KfacStep& report) const;
  void clear_gradients() const;
  KfacStep skip(KfacStep report);
  void need(Fisher fisher, const char* call) const;
  void require_all_preconditioned() const;
  /// The directions' update, or none if they are not finite.
  bool write_lm(const std::vector<std::optional<Preconditioner::Direction>>& directions,
                const KfacStep& done);

  std::vector<RegisteredLayer> report;
  std::vector<at::Tensor> parameters;
  Preconditioner pre;
  std::function<KfacStep()> shared_step;
};

KFAC::Impl::Impl(Registration registration, std::vector<at::Tensor> all, const KfacOptions& options)
    : report(std::move(registration.report)),
      parameters(std::move(all)),
      pre(registration.layers, options) {}

void KFAC::Impl::need(Fisher fisher, const char* call) const {
  if (pre.options().fisher != fisher)
    throw UsageError(fmt::format("K-FAC: {} needs the option `fisher` to say so", call));
}

KfacStep KFAC::Impl::update_curvature() {
  const c10::NoGradGuard no_grad;
  KfacStep done{.step = pre.step(), .factors = pre.factors_due(), .inverses = pre.inverses_due()};
  done.damping = pre.damping();
  if (done.factors) pre.collector().check();
  const std::size_t blocks = pre.blocks().size();
  for (std::size_t i = 0; done.factors && i < blocks; ++i) pre.fold_batch(i);
  for (std::size_t i = 0; done.inverses && i < blocks; ++i)
    for (const FactorSide side : {FactorSide::a, FactorSide::g}) pre.update_inverse(i, side);
  return done;
}

std::vector<std::optional<Preconditioner::Direction>> KFAC::Impl::directions(KfacStep& done) const {
  std::vector<std::optional<Preconditioner::Direction>> found(pre.blocks().size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (pre.can_precondition(i)) {
      found[i] = pre.direction(i);
      done.q += found[i]->product;
    } else if (pre.blocks()[i]->layer().weight.grad().defined()) {
      done.plain.push_back(pre.blocks()[i]->layer().name);
      done.q += pre.plain_product(i);
    }
  }
  return found;
}

/// LibTorch's optimizers leave a parameter without .grad, and its momentum, as it is.
void KFAC::Impl::clear_gradients() const {
  for (const at::Tensor& p : parameters) p.mutable_grad().reset();
}

KfacStep KFAC::Impl::skip(KfacStep done) {
  clear_gradients();
  pre.skip_step(done);
  return done;
}

KFAC::KFAC(torch::nn::Module& model, KfacOptions options)
    : impl_(
          std::make_unique<Impl>(register_layers(model, options), parameters_of(model), options)) {}

KFAC::KFAC(const std::vector<LayerSpec>& layers, const std::vector<at::Tensor>& parameters,
           KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(layers, options), parameters, options)) {}

KFAC::~KFAC() = default;

const std::vector<RegisteredLayer>& KFAC::registration_report() const { return impl_->report; }
Preconditioner& KFAC::parts() { return impl_->pre; }
void KFAC::share(std::function<KfacStep()> step) { impl_->shared_step = std::move(step); }
KfacMemory KFAC::memory_usage() const { return impl_->pre.memory(); }

void KFAC::loss_of(const at::Tensor& output) { impl_->pre.collector().loss_of(output); }
void KFAC::count_only(const at::Tensor& counted) {
  if (impl_->pre.options().shared_positions == SharedPositions::reduce && counted.dim() > 1)
    throw UsageError(
        "K-FAC: count_only() of positions: shared_positions = reduce joins them; use expand");
  impl_->pre.collector().count_only(counted);
}
void KFAC::set_loss_terms(double terms) { impl_->pre.collector().set_terms(terms); }

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, std::int64_t first_sample) {
  impl_->need(Fisher::monte_carlo, "sample_fisher()");
  if (!impl_->pre.factors_due()) return;
  const c10::NoGradGuard no_grad;
  const LabelDraw draw{impl_->pre.options().seed, impl_->pre.step(), first_sample};
  impl_->pre.collector().backward_from(output, {sampled_gradient(output, loss, draw)});
}

void KFAC::sample_fisher(const at::Tensor& output, LossKind loss, const at::Tensor& labels) {
  impl_->need(Fisher::monte_carlo, "sample_fisher()");
  if (!impl_->pre.factors_due()) return;
  const c10::NoGradGuard no_grad;
  impl_->pre.collector().backward_from(output, {labelled_gradient(output, loss, labels)});
}

void KFAC::exact_fisher(const at::Tensor& output, LossKind loss) {
  impl_->need(Fisher::exact, "exact_fisher()");
  if (!impl_->pre.factors_due()) return;
  const c10::NoGradGuard no_grad;
  impl_->pre.collector().backward_from(output, hessian_columns(output, loss));
}

void KFAC::loss_of(const at::Tensor& output, LossKind loss) {
  loss_of(output);
  if (LmUpdate* const lm = impl_->pre.lm()) lm->set_loss(output, loss);
}

void KFAC::Impl::require_all_preconditioned() const {
  const Blocks& blocks = pre.blocks();
  for (const at::Tensor& p : parameters) {
    const bool known = std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
      return block->layer().weight.is_same(p) || block->layer().bias.is_same(p);
    });
    if (p.grad().defined() && !known)
      throw UsageError(
          "K-FAC: Levenberg-Marquardt finds the length of the whole update, but not every trained "
          "parameter is preconditioned; see registration_report()");
  }
}

bool KFAC::Impl::write_lm(const std::vector<std::optional<Preconditioner::Direction>>& directions,
                          const KfacStep& done) {
  LmUpdate& lm = *pre.lm();
  if (!lm.has_loss())
    throw UsageError(
        "K-FAC: with Levenberg-Marquardt call step(output, loss), or loss_of(output, loss) before");
  if (!std::isfinite(done.q)) return false;
  std::vector<at::Tensor> tensors(directions.size());
  for (std::size_t b = 0; b < directions.size(); ++b)
    if (directions[b]) tensors[b] = directions[b]->direction;
  const QuadraticModel model = lm.model(tensors);
  if (!std::isfinite(model.curvature[0])) return false;
  lm.minimise(model);
  lm.write();
  return true;
}

KfacStep KFAC::step() {
  Impl& i = *impl_;
  const c10::NoGradGuard no_grad;
  if (i.shared_step) {
    KfacStep done = i.shared_step();
    if (done.skipped) i.clear_gradients();
    return done;
  }
  try {
    return i.take_step();
  } catch (...) {  // the next batch replaces this one
    i.pre.abandon_step();
    throw;
  }
}

KfacStep KFAC::Impl::take_step() {
  if (pre.lm()) require_all_preconditioned();
  KfacStep done = update_curvature();
  const auto found = directions(done);
  const std::optional<double> nu = pre.clip(done.q);
  if (pre.lm()) {
    if (!write_lm(found, done)) return skip(std::move(done));
  } else {
    if (!nu) return skip(std::move(done));
    done.nu = *nu;
    for (std::size_t k = 0; k < found.size(); ++k)
      if (found[k]) pre.blocks()[k]->write(found[k]->direction, *nu);
  }
  pre.end_step(done);
  return done;
}

KfacStep KFAC::step(const at::Tensor& output, LossKind loss) {
  LmUpdate* const lm = impl_->pre.lm();
  if (!lm) throw UsageError("K-FAC: step(output, loss) needs the option levenberg_marquardt");
  if (!impl_->shared_step) lm->set_loss(output, loss);  // not that of a batch without a step
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
  LmUpdate* const lm = impl_->pre.lm();
  if (!lm) throw UsageError("K-FAC: observe_loss() needs the option levenberg_marquardt");
  if (!lm->awaits_change()) return;
  if (impl_->shared_step)
    lm->note_change(after - before);
  else
    lm->observe(after - before);
}

KfacState KFAC::save() const { return impl_->pre.save(); }
void KFAC::load(const KfacState& state) { impl_->pre.load(state); }

}  // namespace linerate::torch_adapter
