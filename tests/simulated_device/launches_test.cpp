// What a step of ResNet-50 enqueues on a device besides the model's own work: docs/devices.md has
// the table of dense strategies, docs/launches.md that of compressors and of K-FAC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/zoo/network.hpp"
#include "simulated_device/learner.hpp"
#include "simulated_device/page_table.hpp"

namespace linerate::simulated {
namespace {

constexpr const char* kAlone = "alone";

using Launches = std::map<std::string, std::int64_t>;  // by operator

/// Of rank 0 in the third and the fourth step, by SGD with momentum. The image's size changes
/// nothing.
std::vector<Launches> launches_of(Communicator& communicator, const std::string& strategy) {
  constexpr int kSteps = 4, kFirstCounted = 2;
  const at::Device where = device(communicator.rank());
  finish_all(where.index());
  zoo::Network network(models::describe("resnet50", {.input = models::Shape{3, 32, 32}}));
  network.module().to(where);
  const bool has_parallel = strategy != kAlone;
  const double momentum = has_parallel ? torch_adapter::momentum_beside(strategy, 0.9) : 0.9;
  torch::optim::SGD optimizer(network.module().parameters(),
                              torch::optim::SGDOptions(1e-3).momentum(momentum));
  std::optional<KFAC> curvature;
  if (strategy.find("+kfac") != std::string::npos)
    curvature.emplace(
        network.layers(), network.module().parameters(),
        KfacOptions{
            .loss_average = LossAverage{}, .optimizer = &optimizer, .largest_factor = 1200});
  DataParallelOptions options{.strategy = strategy,
                              .measured_steps = 1,
                              .preconditioner = curvature ? &*curvature : nullptr,
                              .device_group = kOfLearners};
  std::optional<DataParallel> parallel;
  if (has_parallel) parallel.emplace(network.module(), communicator, options);
  const at::Tensor x = torch_adapter::numbers({2, 3, 32, 32}, 1, at::kFloat).to(where);
  std::vector<Launches> counted;
  for (int step = 0; step < kSteps; ++step) {
    forget(where.index());
    network.forward(x).square().mean().backward();
    if (curvature)
      parallel->step(*curvature, optimizer);
    else if (parallel)
      parallel->step(optimizer);
    else
      optimizer.step(), optimizer.zero_grad();
    const Asked asked = asked_of(where.index());
    EXPECT_EQ(asked.conflicts_in_words(), "") << strategy;
    if (step < kFirstCounted) continue;
    Launches& launches = counted.emplace_back();
    for (const auto& [stream_and_operator, times] : asked.launches)
      launches[stream_and_operator.second] += times;
  }
  if (strategy.find('+') == std::string::npos) {
    EXPECT_EQ(asked_of(where.index()).all_host_waits(), 0) << strategy;
  }
  if (parallel) parallel->settle();
  return counted;
}

/// Counted once in a process.
const Launches& model_alone() {
  static const Launches whole = [] {
    Launches found;
    on_devices(1, [&](Communicator& communicator, at::Device) {
      found = launches_of(communicator, kAlone).back();
    });
    return found;
  }();
  return whole;
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
  const Launches& alone = model_alone();
  on_devices(2, [&](Communicator& communicator, at::Device) {
    for (const auto& [strategy, most] : std::map<std::string, int>{{"ddp", 120}, {"dear", 400}}) {
      const Launches all = launches_of(communicator, strategy).back();
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

const PageTable& table() {
  static const PageTable whole("docs/launches.md", "ResNet-50");
  return whole;
}

/// Of a row: the step with the fewest launches and that with the most, beyond the model's own.
class LaunchesOfResNet50Beyond : public testing::TestWithParam<std::string> {};

TEST_P(LaunchesOfResNet50Beyond, AreThoseOfThePage) {
  const Launches& alone = model_alone();
  on_devices(2, [&](Communicator& communicator, at::Device) {
    const auto steps = launches_of(communicator, GetParam());
    if (communicator.rank() != 0) return;
    std::vector<std::int64_t> sums;
    for (const Launches& step : steps) {
      const auto [sum, parts] = beyond(step, alone);
      fmt::print("{}: {}\n", GetParam(), parts);
      sums.push_back(sum);
    }
    std::sort(sums.begin(), sums.end());
    table().hold(GetParam(), sums);
  });
}

/// All rows take minutes and gigabytes.
INSTANTIATE_TEST_SUITE_P(OfEachRun, LaunchesOfResNet50Beyond,
                         testing::Values("ddp+fp16",
                                         "ddp+kfac(d, largest=1200, factors=2, inverses=2)"));
INSTANTIATE_TEST_SUITE_P(DISABLED_All, LaunchesOfResNet50Beyond,
                         testing::ValuesIn(table().names()));

}  // namespace
}  // namespace linerate::simulated
