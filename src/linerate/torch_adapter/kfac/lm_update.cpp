#include "linerate/torch_adapter/kfac/lm_update.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/loss_curvature.hpp"

namespace linerate::torch_adapter {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& p : parameters)
    gradients.push_back(p.grad().defined() ? p.grad().clone() : at::zeros_like(p));
  return gradients;
}

}  // namespace

LmUpdate::LmUpdate(const Blocks& blocks, Collector& collector, const LossAverage& average,
                   const LevenbergMarquardtOptions& options)
    : blocks_(blocks),
      collector_(collector),
      average_(average),
      options_(options),
      damping_(options.start) {}

Tensors LmUpdate::parameters() const {
  Tensors list;
  for (const auto& block : blocks_) {
    list.push_back(block->layer().weight);
    if (block->layer().bias.defined()) list.push_back(block->layer().bias);
  }
  return list;
}

at::Tensor LmUpdate::part_in_momentum(const at::Tensor& parameter, const at::Tensor& gradient,
                                      const at::Tensor& last) const {
  if (!parameter.grad().defined()) return at::zeros_like(parameter);
  return there_ ? at::where(gradient.ne(0).any(), last, 0.0) : last;
}

void LmUpdate::set_loss(const at::Tensor& output, LossKind loss, double passes) {
  const CountedPositions counted = collector_.counted();
  losses_.push_back({output, loss, loss_terms(average_, output, counted), counted});
  passes_ = passes;
  while (static_cast<double>(losses_.size()) > passes) losses_.erase(losses_.begin());
}

QuadraticModel LmUpdate::model(const Tensors& directions) {
  const Tensors parameters = this->parameters();
  Tensors gradients;
  {
    const c10::NoGradGuard no_grad;
    gradients = gradients_of(parameters);
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (directions[b].defined()) blocks_[b]->write(directions[b], 1);
    direction_ = gradients_of(parameters);
    momentum_ = last_update_;
    for (std::size_t p = 0; p < momentum_.size(); ++p)
      momentum_[p] = part_in_momentum(parameters[p], gradients[p], last_update_[p]);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].grad().defined()) parameters[p].mutable_grad().copy_(gradients[p]);
  }
  if (!has_loss()) return plane_of(gradients, direction_, momentum_);
  const Collector::Pause pause(collector_);
  return quadratic_model({losses_, passes_}, parameters, gradients, direction_, momentum_);
}

void LmUpdate::minimise(const QuadraticModel& model) {
  const c10::NoGradGuard no_grad;
  const QuadraticStep best = torch_adapter::minimise(model, damping_, options_.l2);
  predicted_ = best.change;
  update_.clear();
  for (std::size_t p = 0; p < direction_.size(); ++p) {
    update_.push_back(direction_[p] * best.direction);
    if (!momentum_.empty()) update_.back().add_(momentum_[p], best.momentum);
  }
}

void LmUpdate::write() {
  const Tensors parameters = this->parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].grad().defined()) parameters[p].mutable_grad().copy_(update_[p]).neg_();
  last_update_ = std::move(update_);
  awaits_change_ = true;
}

double LmUpdate::damping() const { return there_ ? there_->damping.item<double>() : damping_; }

double LmUpdate::damping_after(const at::Tensor& change) const {
  if (there_) return enqueued_damping_after(change).item<double>();
  double ratio = change.item<double>() / predicted_;
  if (!std::isfinite(ratio)) ratio = kHopeless;
  const double factor = std::pow(options_.decay, options_.every);
  const double damping = ratio < kTooFar        ? damping_ / factor
                         : ratio > kTooCautious ? damping_ * factor
                                                : damping_;
  return std::clamp(damping, options_.least, options_.most);
}

void LmUpdate::observe(const at::Tensor& change) {
  there_ ? enqueue_observe(change, there_->moved) : void(damping_ = damping_after(change));
  awaits_change_ = false;
}

void LmUpdate::note_change(at::Tensor change) {
  if (std::exchange(awaits_change_, false)) change_ = std::move(change);
}

void LmUpdate::load(double damping, const Tensors& update) {
  const Tensors parameters = this->parameters();
  if (!update.empty() && update.size() != parameters.size())
    throw InputError(fmt::format(
        "K-FAC state: expected the last update of {} parameters, found that of {}; load the state "
        "of the same model",
        parameters.size(), update.size()));
  const bool is_there = there_.has_value();
  decide_there(false);
  if (damping > 0) damping_ = damping;
  last_update_.clear();
  for (std::size_t p = 0; p < update.size(); ++p)
    last_update_.push_back(update[p].to(parameters[p].options(), /*non_blocking=*/false,
                                        /*copy=*/true));
  change_.reset();
  awaits_change_ = false;
  decide_there(is_there);
}

std::string judges_in_words(std::int64_t step, double judges, int ranks) {
  return fmt::format(
      "K-FAC: step {}: observe_loss() was called on {} of {} ranks; call it on all of them", step,
      judges, ranks);
}

}  // namespace linerate::torch_adapter
