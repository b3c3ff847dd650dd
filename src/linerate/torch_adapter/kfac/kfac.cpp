#include "linerate/torch_adapter/kfac/kfac.hpp"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/levenberg_marquardt.hpp"
#include "linerate/torch_adapter/kfac/loss_curvature.hpp"
#include "linerate/torch_adapter/kfac/loss_terms.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/kfac/registration.hpp"
#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {
namespace {

std::vector<at::Tensor> tensors_of(torch::nn::Module& model) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named_parameters(model)) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

struct KFAC::Impl {
  Impl(Registration registration, std::vector<at::Tensor> all, const KfacOptions& options);

  KfacStep update_curvature();
  /// Of every layer that has inverses and a gradient; names those that lack an inverse.
  std::vector<std::optional<Preconditioner::Direction>> directions(KfacStep& report) const;
  void skip(KfacStep& report) const;
  void need(Fisher fisher, const char* call) const;
  /// The tensors of a layer that a direction has parts for.
  std::vector<at::Tensor> layer_parameters() const;

  std::vector<RegisteredLayer> report;
  std::vector<at::Tensor> parameters;
  Preconditioner pre;
  std::optional<LevenbergMarquardt> lm;
  std::vector<at::Tensor> last_update;  // by layer_parameters(); empty: none yet
  double predicted_change = 0;
  std::function<KfacStep()> shared_step;
};

KFAC::Impl::Impl(Registration registration, std::vector<at::Tensor> all, const KfacOptions& options)
    : report(std::move(registration.report)),
      parameters(std::move(all)),
      pre(registration.layers, options) {
  if (!options.levenberg_marquardt) return;
  lm.emplace(*options.levenberg_marquardt);
  pre.set_damping(lm->damping());
}

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
    }
  }
  return found;
}

/// LibTorch's optimizers leave a parameter without .grad, and its momentum, as it is.
void KFAC::Impl::skip(KfacStep& done) const {
  done.skipped = true;
  for (const at::Tensor& p : parameters) p.mutable_grad().reset();
}

KFAC::KFAC(torch::nn::Module& model, KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(model, options), tensors_of(model), options)) {}

KFAC::KFAC(const std::vector<LayerSpec>& layers, const std::vector<at::Tensor>& parameters,
           KfacOptions options)
    : impl_(std::make_unique<Impl>(register_layers(layers, options), parameters, options)) {}

KFAC::~KFAC() = default;

const std::vector<RegisteredLayer>& KFAC::registration_report() const { return impl_->report; }
Preconditioner& KFAC::parts() { return impl_->pre; }
void KFAC::share(std::function<KfacStep()> step) { impl_->shared_step = std::move(step); }
KfacMemory KFAC::memory_usage() const { return impl_->pre.memory(); }

void KFAC::loss_of(const at::Tensor& output) { impl_->pre.collector().loss_of(output); }
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

KfacStep KFAC::step() {
  Impl& i = *impl_;
  if (i.lm) throw UsageError("K-FAC: with Levenberg-Marquardt call step(output, loss)");
  const c10::NoGradGuard no_grad;
  if (i.shared_step) {
    KfacStep done = i.shared_step();
    if (done.skipped) i.skip(done);
    return done;
  }
  KfacStep done = i.update_curvature();
  const auto directions = i.directions(done);
  const std::optional<double> nu = i.pre.clip(done.q);
  if (nu) {
    done.nu = *nu;
    for (std::size_t k = 0; k < directions.size(); ++k)
      if (directions[k]) i.pre.blocks()[k]->write(directions[k]->direction, *nu);
  } else {
    i.skip(done);
  }
  i.pre.end_step(done);
  return done;
}

std::vector<at::Tensor> KFAC::Impl::layer_parameters() const {
  std::vector<at::Tensor> list;
  for (const auto& block : pre.blocks()) {
    list.push_back(block->layer().weight);
    if (block->layer().bias.defined()) list.push_back(block->layer().bias);
  }
  return list;
}

KfacStep KFAC::step(const at::Tensor& output, LossKind loss) {
  Impl& i = *impl_;
  if (!i.lm) throw UsageError("K-FAC: step(output, loss) needs the option levenberg_marquardt");
  const std::vector<at::Tensor> layers = i.layer_parameters();
  KfacStep done = i.update_curvature();
  std::vector<at::Tensor> gradients, direction;
  {
    const c10::NoGradGuard no_grad;
    for (const at::Tensor& p : i.parameters)
      if (p.grad().defined() && std::none_of(layers.begin(), layers.end(),
                                             [&](const auto& mine) { return mine.is_same(p); }))
        throw UsageError(
            "K-FAC: Levenberg-Marquardt finds the length of the whole update, but not every "
            "trained parameter is preconditioned; see registration_report()");
    for (const at::Tensor& p : layers)
      gradients.push_back(p.grad().defined() ? p.grad().clone() : at::zeros_like(p));
    const auto directions = i.directions(done);
    if (!std::isfinite(done.q)) {
      i.skip(done);
      i.pre.end_step(done);
      return done;
    }
    for (std::size_t k = 0; k < directions.size(); ++k)
      if (directions[k]) i.pre.blocks()[k]->write(directions[k]->direction, 1);
    for (const at::Tensor& p : layers)
      direction.push_back(p.grad().defined() ? p.grad().clone() : at::zeros_like(p));
  }
  const LevenbergMarquardtOptions& options = *i.pre.options().levenberg_marquardt;
  QuadraticModel model;
  {
    const Collector::Pause pause(i.pre.collector());
    model = quadratic_model(output, loss, loss_terms(*i.pre.options().loss_average, output), layers,
                            gradients, direction, i.last_update);
  }
  const QuadraticStep best = minimise(model, i.lm->damping(), options.l2);
  const c10::NoGradGuard no_grad;
  i.predicted_change = best.change;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    direction[k].mul_(best.direction);
    if (!i.last_update.empty()) direction[k].add_(i.last_update[k], best.momentum);
    if (layers[k].grad().defined()) layers[k].mutable_grad().copy_(direction[k]).neg_();
  }
  i.last_update = std::move(direction);
  i.pre.end_step(done);
  return done;
}

struct KFAC::Pause::Impl {
  explicit Impl(Collector& collector) : pause(collector) {}
  Collector::Pause pause;
};
KFAC::Pause::Pause(KFAC& owner) : impl_(std::make_unique<Impl>(owner.impl_->pre.collector())) {}
KFAC::Pause::~Pause() = default;

bool KFAC::wants_loss() const {
  return impl_->lm && impl_->pre.step() % impl_->pre.options().levenberg_marquardt->every == 0;
}

void KFAC::observe_loss(double before, double after) {
  if (!impl_->lm) throw UsageError("K-FAC: observe_loss() needs the option levenberg_marquardt");
  impl_->lm->observe(after - before, impl_->predicted_change);
  impl_->pre.set_damping(impl_->lm->damping());
}

KfacState KFAC::save() const {
  KfacState state = impl_->pre.save();
  if (!impl_->lm) return state;
  state.lm_damping = impl_->lm->damping();
  for (const at::Tensor& t : impl_->last_update) state.lm_update.push_back(t.clone());
  return state;
}

void KFAC::load(const KfacState& state) {
  impl_->pre.load(state);
  if (!impl_->lm) return;
  if (state.lm_damping > 0) impl_->lm->set_damping(state.lm_damping);
  impl_->pre.set_damping(impl_->lm->damping());
  impl_->last_update.clear();
  for (const at::Tensor& t : state.lm_update) impl_->last_update.push_back(t.clone());
}

}  // namespace linerate::torch_adapter
