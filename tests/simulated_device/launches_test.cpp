// What a step of ResNet-50 enqueues on a device besides the model's own work: docs/devices.md has
// the table.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "linerate/core/file.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/zoo/network.hpp"
#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::simulated {
namespace {

using comm::Communicator;

constexpr const char* kOfResNet = "of ResNet-50";
constexpr const char* kAlone = "alone";

using Launches = std::map<std::string, std::int64_t>;  // by operator

/// Of one step of rank 0, by SGD with momentum. The image's size changes nothing.
Launches launches_of(Communicator& communicator, const std::string& strategy) {
  constexpr int kSteps = 4;
  const at::Device where = device(communicator.rank());
  finish_all(where.index());
  zoo::Network network(models::describe("resnet50", {.input = models::Shape{3, 32, 32}}));
  network.module().to(where);
  torch::optim::SGD optimizer(network.module().parameters(),
                              torch::optim::SGDOptions(1e-3).momentum(0.9));
  std::optional<torch_adapter::DataParallel> parallel;
  if (strategy != kAlone)
    parallel.emplace(network.module(), communicator,
                     torch_adapter::DataParallelOptions{
                         .strategy = strategy, .measured_steps = 1, .device_group = kOfResNet});
  const at::Tensor x = torch_adapter::numbers({2, 3, 32, 32}, 1, at::kFloat).to(where);
  for (int step = 0; step < kSteps; ++step) {
    forget(where.index());
    network.forward(x).square().mean().backward();
    if (parallel)
      parallel->step(optimizer);
    else
      optimizer.step(), optimizer.zero_grad();
  }
  const Asked asked = asked_of(where.index());
  EXPECT_EQ(asked.conflicts_in_words(), "") << strategy;
  EXPECT_EQ(asked.all_host_waits(), 0) << strategy;
  if (parallel) parallel->settle();
  Launches launches;
  for (const auto& [stream_and_operator, times] : asked.launches)
    launches[stream_and_operator.second] += times;
  return launches;
}

struct Beyond {
  std::int64_t sum = 0;
  std::string parts = {};
};

/// What `all` has more than `alone`.
Beyond beyond(const Launches& all, const Launches& alone) {
  auto [sum, parts] = Beyond();
  for (const auto& [name, times] : all) {
    const auto own = alone.find(name);
    const std::int64_t more = times - (own == alone.end() ? 0 : own->second);
    if (more == 0) continue;
    sum += more;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", more, name);
  }
  return {sum, parts};
}

/// DDP has about 330: a kernel for each gradient and each buffer, and the collectives. The buckets
/// of "dear" follow from what a probe measures: its row is one that was found.
TEST(LaunchesOfResNet50, AreFewMoreThanTheModelsOwn) {
  const std::string page = read_file(DEVICES_PAGE);
  torch_adapter::ranks(2, [&](Communicator& communicator) {
    const torch_adapter::GroupOverCommunicator group(kOfResNet, communicator, {}, &streamed);
    const c10::DeviceGuard guard(device(communicator.rank()));
    const Launches alone = launches_of(communicator, kAlone);
    for (const auto& [strategy, most] : std::map<std::string, int>{{"ddp", 120}, {"dear", 400}}) {
      const Launches all = launches_of(communicator, strategy);
      if (communicator.rank() != 0) continue;
      const auto [sum, parts] = beyond(all, alone);
      const std::string row = fmt::format("| `{}` | {} ({}) |", strategy, sum, parts);
      fmt::print("{}\n", row);
      EXPECT_LE(sum, most) << strategy;
      if (strategy == "ddp") {
        EXPECT_TRUE(page.find(row) != std::string::npos) << "docs/devices.md has another row";
      }
    }
  });
}

}  // namespace
}  // namespace linerate::simulated
