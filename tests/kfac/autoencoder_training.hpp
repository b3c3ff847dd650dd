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

/// A network and one way to train it on all images at once.
class Training {
 public:
  virtual ~Training() = default;
  virtual void step() = 0;
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
  Net& net() { return net_; }

 protected:
  at::Tensor data_ = images();
  Net net_;
  std::int64_t done_ = 0;
};

class FirstOrder : public Training {
 public:
  static std::unique_ptr<Training> adam(double rate) {
    auto training = std::make_unique<FirstOrder>();
    training->optimizer_ = std::make_unique<torch::optim::Adam>(training->net_.parameters(),
                                                                torch::optim::AdamOptions(rate));
    return training;
  }
  static std::unique_ptr<Training> nesterov(double rate) {
    auto training = std::make_unique<FirstOrder>();
    training->optimizer_ = std::make_unique<torch::optim::SGD>(
        training->net_.parameters(), torch::optim::SGDOptions(rate).momentum(0.9).nesterov(true));
    return training;
  }
  void step() override {
    optimizer_->zero_grad();
    loss(net_.forward(data_), data_).backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

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

/// Where tensors are computed on as a device's are, what a step decides is decided there, too.
inline void decide_there_as_device(const KFAC& pre) {
  KfacInside::preconditioner(pre).set_enqueues(CpuAsDevice::is_alive());
}

/// SGD with momentum behind the KL clip.
class Clipped : public Training {
 public:
  explicit Clipped(const KfacOptions& options)
      : fisher_(options.fisher),
        pre_(net_, options),
        optimizer_(net_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    decide_there_as_device(pre_);
  }
  void step() override {
    optimizer_.zero_grad();
    const at::Tensor logits = net_.forward(data_);
    if (fisher_ == Fisher::monte_carlo)
      pre_.sample_fisher(logits, LossKind::binary_cross_entropy, labels(logits, done_));
    loss(logits, data_).backward();
    last_ = pre_.step();
    optimizer_.step();
    ++done_;
  }
  const KfacStep& last() const { return last_; }

 private:
  Fisher fisher_;
  KFAC pre_;
  torch::optim::SGD optimizer_;
  KfacStep last_;
};

}  // namespace linerate::torch_adapter::autoencoder
