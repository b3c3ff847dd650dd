#include "linerate/torch_adapter/kfac/lm_update.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "linerate/torch_adapter/kfac/loss_terms.hpp"

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
    : blocks_(blocks), collector_(collector), average_(average), l2_(options.l2), rule_(options) {}

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
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].grad().defined()) parameters[p].mutable_grad().copy_(gradients[p]);
  }
  if (!has_loss()) return plane_of(gradients, direction_, last_update_);
  const auto& [output, loss] = *loss_;
  const CountedPositions counted = collector_.counted();
  const Collector::Pause pause(collector_);
  return quadratic_model(output, loss, {loss_terms(average_, output, counted), counted}, parameters,
                         gradients, direction_, last_update_);
}

void LmUpdate::minimise(const QuadraticModel& model) {
  const c10::NoGradGuard no_grad;
  const QuadraticStep best = torch_adapter::minimise(model, damping(), l2_);
  predicted_ = best.change;
  update_.clear();
  for (std::size_t p = 0; p < direction_.size(); ++p) {
    update_.push_back(direction_[p] * best.direction);
    if (!last_update_.empty()) update_.back().add_(last_update_[p], best.momentum);
  }
}

void LmUpdate::write() {
  const Tensors parameters = this->parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].grad().defined()) parameters[p].mutable_grad().copy_(update_[p]).neg_();
  last_update_ = std::move(update_);
  awaits_change_ = true;
}

void LmUpdate::observe(double change) {
  rule_.set_damping(damping_after(change));
  awaits_change_ = false;
}

void LmUpdate::note_change(double change) {
  if (std::exchange(awaits_change_, false)) change_ = change;
}

void LmUpdate::load(double damping, Tensors update) {
  if (damping > 0) rule_.set_damping(damping);
  last_update_ = std::move(update);
  change_.reset();
  awaits_change_ = false;
}

}  // namespace linerate::torch_adapter
