// A model with what trains it, on the CPU or on a simulated device.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/registered_compressors.hpp"

namespace linerate::simulated {

using comm::Communicator;
using torch_adapter::DataParallel;
using torch_adapter::DataParallelOptions;
using torch_adapter::InverseMethod;
using torch_adapter::KFAC;
using torch_adapter::KfacOptions;
using torch_adapter::LossAverage;
using torch_adapter::StepReport;

inline constexpr const char* kOfLearners = "of learners";  // their group
inline constexpr std::int64_t kRows = 4;                   // a rank

/// Parameters of each kind that a step treats apart, buffers, and a layer that is not always used.
struct LearnersNet : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).bias(false)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(8));
  torch::nn::Linear sometimes =
      register_module("sometimes", torch::nn::Linear(torch::nn::LinearOptions(32, 32).bias(false)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 5));

  LearnersNet(at::Device device, at::ScalarType type) {
    torch_adapter::set_weights_of_rank(*this);
    to(type);
    to(device);
  }
  /// What is behind the convolution, a row a sample.
  at::Tensor hidden(const at::Tensor& x) {
    return torch::tanh(norm->forward(conv->forward(x))).flatten(1);
  }
  at::Tensor forward(const at::Tensor& images, bool with_all) {
    at::Tensor x = hidden(images);
    if (with_all) x = x + sometimes->forward(x);
    return head->forward(x);
  }
};

inline bool preconditions(const std::string& strategy) {
  return strategy.find("kfac") != std::string::npos;
}

/// A wait of the host between steps, for a plan by measured times: of what is probed, and when a
/// window of measured steps is full.
inline bool is_of_times(const std::string& wait) {
  return wait == "an event" || wait == "an event [compare clocks]" ||
         wait == "an event [times of measured steps]";
}

struct Learner {
  int rank;
  at::Device device;
  LearnersNet net;
  torch::optim::SGD optimizer;
  std::optional<KFAC> curvature;
  std::optional<DataParallel> parallel;

  Learner(Communicator& communicator, at::Device on, DataParallelOptions options,
          at::ScalarType type = at::kFloat)
      : rank(communicator.rank()),
        device(on),
        net(on, type),
        optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(
                                        torch_adapter::momentum_beside(options.strategy, 0.9))) {
    if (preconditions(options.strategy)) {
      const bool is_eigen = options.strategy.find("inverse=eigen") != std::string::npos;
      curvature.emplace(
          net, KfacOptions{.loss_average = LossAverage{},
                           .method = is_eigen ? InverseMethod::eigen : InverseMethod::cholesky,
                           .damping = 0.1,
                           .optimizer = &optimizer});
      options.preconditioner = &*curvature;
    }
    parallel.emplace(net, communicator, options);
  }

  at::Tensor loss_of(const at::Tensor& x, const at::Tensor& y, bool with_all) {
    return (net.forward(x, with_all) - y).square().sum() / static_cast<double>(x.size(0));
  }
  /// Computed where they lie: nothing is copied there, for which the host would wait.
  at::Tensor numbers(at::IntArrayRef shape, double seed) const {
    const auto f64 = at::TensorOptions(at::kDouble).device(device);
    return torch::sin(torch::arange(c10::multiply_integers(shape), f64) * 12.9898 + seed * 78.233)
        .reshape(shape)
        .to(net.head->weight.scalar_type());
  }
  at::Tensor images(double step) const { return numbers({kRows, 3, 4, 4}, step + 10 * rank); }
  at::Tensor loss(double step, bool with_all = true) {
    return loss_of(images(step), numbers({kRows, 5}, step + 0.5 + rank), with_all);
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
  /// Weights and buffers, on the CPU.
  at::Tensor state() const {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& p : net.parameters())
      flat.push_back(p.detach().cpu().flatten().to(at::kDouble));
    for (const at::Tensor& b : net.buffers()) flat.push_back(b.cpu().flatten().to(at::kDouble));
    return at::cat(flat);
  }
};

/// On so many ranks, each with its device, which is current and has been asked for nothing.
inline void on_devices(int ranks, const std::function<void(Communicator&, at::Device)>& work) {
  torch_adapter::ranks(ranks, [&](Communicator& communicator) {
    const torch_adapter::GroupOverCommunicator group(kOfLearners, communicator, {}, &streamed);
    const at::Device mine = simulated::device(communicator.rank());
    const c10::DeviceGuard guard(mine);
    finish_all(mine.index());
    forget(mine.index());
    work(communicator, mine);
    finish_all(mine.index());
  });
}

}  // namespace linerate::simulated
