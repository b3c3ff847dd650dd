// What plans are made by where steps are enqueued: times of the device, whatever the host takes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "linerate/calibrate/probe.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/torch_adapter/device_probe.hpp"
#include "simulated_device/learner.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::simulated {
namespace {

void let_the_host_be_slow(bool slow) {
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

/// What the run has learnt: Workload, Plan, and what a trial has found.
std::string learnt(Communicator& c, const std::string& strategy, bool host_is_slow) {
  finish_all(c.rank());
  Learner learner(c, device(c.rank()),
                  {.strategy = strategy,
                   .measured_steps = 2,
                   .most_above_ddp = 0.01,
                   .device_group = kOfLearners});
  for (at::Tensor& p : learner.net.parameters())  // in backward, between gradients
    p.register_hook([=](const at::Tensor& g) {
      let_the_host_be_slow(host_is_slow);
      return g;
    });
  for (int step = 0; step < 16; ++step) {
    const at::Tensor loss = learner.loss(0);
    let_the_host_be_slow(host_is_slow && step % 2 == 0);
    loss.backward();
    learner.step();
    let_the_host_be_slow(host_is_slow && step % 3 == 0);
  }
  DataParallel& parallel = *learner.parallel;
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
  on_devices(2, [&](Communicator& c, at::Device) {
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
  on_devices(2, [](Communicator& c, at::Device where) {
    const auto of_device = comm::make_tensor_group(kOfLearners, where);
    constexpr std::int64_t kLargest = 1 << 16;
    torch_adapter::GroupCallTrain train(*of_device, c, where, kLargest);
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
