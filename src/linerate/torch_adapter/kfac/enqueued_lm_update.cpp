// What an LmUpdate does without a look at values.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "linerate/torch_adapter/kfac/lm_update.hpp"

namespace linerate::torch_adapter {

void LmUpdate::decide_there(bool yes) {
  if (yes == there_.has_value()) return;
  if (yes) {
    const at::TensorOptions options =
        blocks_.front()->layer().weight.options().dtype(at::kDouble).requires_grad(false);
    there_ =
        There{at::full({}, damping_, options), at::full({}, predicted_, options),
              at::full({}, awaits_change_, options.dtype(at::kBool)), at::full({}, 0.0, options)};
    return;
  }
  damping_ = there_->damping.item<double>();
  predicted_ = there_->predicted.item<double>();
  awaits_change_ = awaits_change_ && there_->moved.item<bool>();
  there_.reset();
}

void LmUpdate::enqueue_minimise(const QuadraticModel& model) {
  const c10::NoGradGuard no_grad;
  const EnqueuedQuadraticStep best =
      torch_adapter::enqueue_minimise(model, there_->damping, options_.l2);
  there_->change = best.change;
  update_.clear();
  for (std::size_t p = 0; p < direction_.size(); ++p) {
    update_.push_back(direction_[p] * best.direction);
    if (!momentum_.empty()) update_.back().add_(momentum_[p] * best.momentum);
  }
}

/// Without an update this rank had no model, and then no rank moves.
void LmUpdate::enqueue_write(const at::Tensor& moves) {
  const std::vector<at::Tensor> parameters = this->parameters();
  for (std::size_t p = 0; p < update_.size(); ++p) {
    if (parameters[p].grad().defined())
      parameters[p].mutable_grad().copy_(at::where(moves, -update_[p], 0.0));
    const at::Tensor before = last_update_.empty() ? at::zeros_like(update_[p]) : last_update_[p];
    update_[p] = at::where(moves, update_[p], before);
  }
  if (!update_.empty()) last_update_ = std::move(update_);
  update_.clear();
  there_->predicted = at::where(moves, there_->change, there_->predicted);
  there_->moved = moves;
  awaits_change_ = true;
}

at::Tensor LmUpdate::enqueued_damping_after(const at::Tensor& change) const {
  const at::Tensor quotient = change / there_->predicted;
  const at::Tensor ratio = at::where(at::isfinite(quotient), quotient, kHopeless);
  const double factor = std::pow(options_.decay, options_.every);
  const at::Tensor& damping = there_->damping;
  const at::Tensor next = at::where(ratio.lt(kTooFar), damping / factor,
                                    at::where(ratio.gt(kTooCautious), damping * factor, damping));
  return at::where(there_->moved, next.clamp(options_.least, options_.most), damping);
}

void LmUpdate::enqueue_observe(const at::Tensor& change, const at::Tensor& counts) {
  there_->damping = at::where(counts, enqueued_damping_after(change), there_->damping);
}

}  // namespace linerate::torch_adapter
