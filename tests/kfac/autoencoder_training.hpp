// Optimizers on the autoencoder benchmark, each until the excess loss is small enough.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>

#include "kfac/autoencoder_task.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/preconditioner.hpp"

namespace linerate::torch_adapter::autoencoder {

/// K-FAC as in the benchmark: every factor and inverse in every step.
inline KfacOptions kfac_options(Fisher fisher) {
  return {.loss_average = LossAverage{},
          .fisher = fisher,
          .factor_interval = 1,
          .inverse_interval = 1,
          .damping = 0.03,
          .kl_clip = 1e-3,
          .learning_rate = [](std::int64_t) { return 0.1; }};
}

/// A network that is trained on all images at once.
class Training {
 public:
  /// By Adam.
  explicit Training(double rate)
      : optimizer_(std::make_unique<torch::optim::Adam>(net_.parameters(), rate)) {}
  /// By SGD with momentum behind the KL clip.
  explicit Training(const KfacOptions& options)
      : fisher_(options.fisher),
        pre_(std::make_unique<KFAC>(net_, options)),
        optimizer_(std::make_unique<torch::optim::SGD>(
            net_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9))) {
    // Where tensors are computed on as a device's are, what a step decides is decided there, too.
    KfacInside::preconditioner(*pre_).set_enqueues(CpuAsDevice::is_alive());
  }
  void step() {
    optimizer_->zero_grad();
    const at::Tensor logits = net_.forward(data_);
    if (pre_ && fisher_ == Fisher::monte_carlo)
      pre_->sample_fisher(logits, LossKind::binary_cross_entropy, labels(logits, done_));
    loss(logits, data_).backward();
    if (pre_) last_ = pre_->step();
    optimizer_->step();
    ++done_;
  }
  /// Of the weights as they are.
  double excess() {
    const torch::NoGradGuard no_grad;
    return loss(net_.forward(data_), data_).item<double>() - kFloor;
  }
  /// The least number of steps after which the excess is at most `target`; 0: more than `most`.
  int steps_to(double target, int most) {
    for (int k = 1; k <= most; ++k) {
      step();
      if (excess() <= target) return k;
    }
    return 0;
  }
  const KfacStep& last() const { return last_; }

 private:
  at::Tensor data_ = images();
  Net net_;
  Fisher fisher_ = {};
  std::unique_ptr<KFAC> pre_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  KfacStep last_;
  std::int64_t done_ = 0;
};

}  // namespace linerate::torch_adapter::autoencoder
