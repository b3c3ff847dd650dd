// What plans are made by where steps are enqueued: times of the device, whatever the host takes.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <thread>

#include "linerate/calibrate/probe.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/device_probe.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::simulated {
namespace {

using comm::Communicator;
using torch_adapter::DataParallel;
using torch_adapter::GroupOverCommunicator;
using torch_adapter::numbers;

constexpr const char* kTimedGroup = "of timed devices";

struct TimedLayers : torch::nn::Module {
  std::vector<torch::nn::Linear> all;
  TimedLayers() {
    for (int i = 0; i < 4; ++i)
      all.push_back(register_module(fmt::format("layer{}", i), torch::nn::Linear(8, 8)));
    torch_adapter::set_weights_of_rank(*this);
  }
  at::Tensor forward(at::Tensor x) {
    for (torch::nn::Linear& layer : all) x = layer->forward(x).tanh();
    return x;
  }
};

void let_the_host_be_slow(bool slow) {
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

/// What the run has learnt: Workload, Plan, and what a trial has found.
std::string learnt(Communicator& c, const std::string& strategy, bool host_is_slow) {
  const at::Device where = device(c.rank());
  finish_all(c.rank());
  TimedLayers net;
  net.to(where);
  for (torch::nn::Linear& layer : net.all)  // in backward, between gradients
    layer->weight.register_hook([=](const at::Tensor& g) {
      let_the_host_be_slow(host_is_slow);
      return g;
    });
  torch::optim::SGD optimizer(net.parameters(), 0.01);
  torch_adapter::DataParallelOptions options{.strategy = strategy,
                                             .measured_steps = 2,
                                             .most_above_ddp = 0.01,
                                             .device_group = kTimedGroup};
  std::unique_ptr<torch_adapter::KFAC> curvature;
  if (strategy.find("kfac") != std::string::npos) {
    curvature = std::make_unique<torch_adapter::KFAC>(
        net,
        torch_adapter::KfacOptions{
            .loss_average = torch_adapter::LossAverage{}, .damping = 0.1, .optimizer = &optimizer});
    options.preconditioner = curvature.get();
  }
  DataParallel parallel(net, c, options);
  const at::Tensor x = numbers({4, 8}, c.rank(), at::kFloat).to(where);
  for (int step = 0; step < 16; ++step) {
    const at::Tensor loss = net.forward(x).square().sum();
    let_the_host_be_slow(host_is_slow && step % 2 == 0);
    loss.backward();
    curvature ? parallel.step(*curvature, optimizer) : parallel.step(optimizer);
    let_the_host_be_slow(host_is_slow && step % 3 == 0);
  }
  parallel.settle();
  return fmt::format("{}\n{}\n{}", doc::to_json(parallel.workload()), doc::to_json(parallel.plan()),
                     parallel.trial_in_words());
}

/// Every exchange that plans by times, and K-FAC, by how it is shared: what a host that sleeps in
/// the middle of steps has learnt is what one that does not has learnt, to the last digit.
TEST(DeviceTimes, AreTheSameIfTheHostIsSlow) {
  const torch_adapter::Warnings quiet;
  std::vector<std::string> strategies = {"auto", "ddp+kfac(spd, factors=1, inverses=1)",
                                         "ddp+kfac(mpd, factors=1, inverses=2)",
                                         "ddp+kfac(mem, factors=1, inverses=1)"};
  for (const auto& line : plan::exchanges().lines())
    if (line.make.traits.runs.train && line.make.traits.plans_by >= plan::PlansBy::times)
      strategies.push_back(line.name);
  ASSERT_GE(strategies.size(), 7u);
  torch_adapter::ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kTimedGroup, c, {}, &streamed);
    const c10::DeviceGuard guard(device(c.rank()));
    for (const std::string& strategy : strategies) {
      const std::string quick = learnt(c, strategy, false);
      EXPECT_EQ(learnt(c, strategy, true), quick) << strategy;
      if (c.rank() == 0 && strategy == "dear") {
        EXPECT_THAT(quick, testing::HasSubstr("was tried"));
      }
    }
  });
}

/// A launch of the simulated device takes a microsecond, a collective as well.
TEST(DeviceTimes, TheNetworkIsProbedThroughTheDevicesGroup) {
  torch_adapter::ranks(2, [](Communicator& c) {
    const GroupOverCommunicator group(kTimedGroup, c, {}, &streamed);
    const c10::DeviceGuard guard(device(c.rank()));
    const auto of_device = comm::make_tensor_group(kTimedGroup, device(c.rank()));
    constexpr std::int64_t kLargest = 1 << 16;
    torch_adapter::GroupCallTrain train(*of_device, c, device(c.rank()), kLargest);
    const doc::Cluster found = calibrate::quick_probe(
        c, train, kLargest,
        {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
         Collective::all_to_all, Collective::broadcast});
    ASSERT_EQ(found.collectives.size(), 5u);
    for (const doc::CollectiveCost& cost : found.collectives) {
      ASSERT_GE(cost.samples.size(), 3u);
      for (const doc::CostSample& sample : cost.samples) EXPECT_NEAR(sample.seconds, 1e-6, 1e-12);
    }
  });
}

}  // namespace
}  // namespace linerate::simulated
