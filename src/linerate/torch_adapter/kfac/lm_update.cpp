#include "linerate/torch_adapter/kfac/lm_update.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

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
      if (!parameters[p].grad().defined()) momentum_[p] = at::zeros_like(parameters[p]);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].grad().defined()) parameters[p].mutable_grad().copy_(gradients[p]);
  }
  if (!has_loss()) return plane_of(gradients, direction_, momentum_);
  const auto& [output, loss] = *loss_;
  const CountedPositions counted = collector_.counted();
  const Collector::Pause pause(collector_);
  return quadratic_model(output, loss, {loss_terms(average_, output, counted), counted}, parameters,
                         gradients, direction_, momentum_);
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

double LmUpdate::damping_after(double change) const {
  double ratio = change / predicted_;
  if (!std::isfinite(ratio)) ratio = -100;
  const double factor = std::pow(options_.decay, options_.every);
  const double damping = ratio < 0.25   ? damping_ / factor
                         : ratio > 0.75 ? damping_ * factor
                                        : damping_;
  return std::clamp(damping, options_.least, options_.most);
}

void LmUpdate::observe(double change) {
  damping_ = damping_after(change);
  awaits_change_ = false;
}

void LmUpdate::note_change(double change) {
  if (std::exchange(awaits_change_, false)) change_ = change;
}

void LmUpdate::load(double damping, Tensors update) {
  if (damping > 0) damping_ = damping;
  last_update_ = std::move(update);
  change_.reset();
  awaits_change_ = false;
}

}  // namespace linerate::torch_adapter
