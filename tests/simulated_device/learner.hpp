// A model with what trains it, on the CPU or on a simulated device.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "linerate/comm/communicator.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

namespace linerate::simulated {

using comm::Communicator;
using torch_adapter::DataParallel;
using torch_adapter::DataParallelOptions;
using torch_adapter::KFAC;
using torch_adapter::KfacOptions;
using torch_adapter::LossAverage;
using torch_adapter::StepReport;

inline constexpr const char* kOfLearners = "of learners";  // their group
inline constexpr std::int64_t kRows = 4;                   // a rank

/// Computed where they lie: nothing is copied there, for which the host would wait.
inline at::Tensor numbers(at::IntArrayRef shape, double seed, at::Device device) {
  const auto f64 = at::TensorOptions(at::kDouble).device(device);
  return torch::sin(torch::arange(c10::multiply_integers(shape), f64) * 12.9898 + seed * 78.233)
      .reshape(shape)
      .to(at::kFloat);
}

/// A layer that is not always used; buffers.
struct UsedNet : torch::nn::Module {
  torch::nn::Conv2d first{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, sometimes{nullptr}, last{nullptr};

  UsedNet(int rank, at::Device device) {
    using torch::nn::Conv2dOptions;
    first =
        register_module("first", torch::nn::Conv2d(Conv2dOptions(2, 4, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    hidden = register_module("hidden", torch::nn::Linear(64, 16));
    sometimes = register_module("sometimes", torch::nn::Linear(16, 16));
    last = register_module("last", torch::nn::Linear(16, 3));
    const torch::NoGradGuard no_grad;
    double seed = 100 * rank;
    for (at::Tensor& p : parameters())
      p.copy_(numbers(p.sizes(), ++seed, at::kCPU) / std::sqrt(double(p.numel() / p.size(0))));
    to(device);
  }
  at::Tensor forward(at::Tensor x, bool with_all) {
    x = torch::tanh(norm->forward(first->forward(x)));
    x = torch::tanh(hidden->forward(x.flatten(1)));
    if (with_all) x = x + sometimes->forward(x);
    return last->forward(x);
  }
};

inline bool preconditions(const std::string& strategy) {
  return strategy.find("kfac") != std::string::npos;
}

/// A model with what trains it.
struct Learner {
  int rank;
  at::Device device;
  UsedNet net;
  torch::optim::SGD optimizer;
  std::optional<KFAC> curvature;
  std::optional<DataParallel> parallel;

  Learner(Communicator& communicator, at::Device on, DataParallelOptions options)
      : rank(communicator.rank()),
        device(on),
        net(rank, on),
        optimizer(net.parameters(), torch::optim::SGDOptions(0.02).momentum(0.9)) {
    if (preconditions(options.strategy)) {
      KfacOptions kfac;
      kfac.loss_average = LossAverage{LossAverage::Over::batch};
      kfac.optimizer = &optimizer;
      curvature.emplace(net, kfac);
      options.preconditioner = &*curvature;
    }
    parallel.emplace(net, communicator, options);
  }

  at::Tensor loss(double step, bool with_all = true, double factor = 1) {
    const at::Tensor x = numbers({kRows, 2, 4, 4}, step + 10 * rank, device) * factor;
    const at::Tensor y = numbers({kRows, 3}, step + 0.5 + rank, device);
    return torch::nn::functional::mse_loss(net.forward(x, with_all), y);
  }
  void pass(double step, bool with_all = true) { loss(step, with_all).backward(); }
  StepReport step() {
    return curvature ? parallel->step(*curvature, optimizer) : parallel->step(optimizer);
  }
  /// As programs do that clip in between; what finish() gives is as it says.
  void step_apart() {
    if (!parallel->finish().infinite) {
      if (curvature) curvature->step();
      optimizer.step();
    }
    optimizer.zero_grad(false);
  }
};

}  // namespace linerate::simulated
