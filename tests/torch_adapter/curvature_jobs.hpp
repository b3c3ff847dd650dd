// What the tests of shared curvature have in common: data, loss, options, strategies.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"
#include "torch_adapter/curvature_nets.hpp"

namespace linerate::torch_adapter {

inline constexpr std::int64_t kSamples = 24, kSteps = 10;
inline constexpr double kRate = 0.05;

struct Data {
  torch::Tensor inputs, targets;
  static Data of_tokens() {
    torch::manual_seed(4);
    return {torch::randint(11, {kSamples, 5}), torch::randn({kSamples, 4}, torch::kDouble)};
  }
  /// Ranks are threads of one process and share its generator: nobody else draws now.
  static Data whole(std::uint64_t seed = 3) {
    torch::manual_seed(seed);
    return {torch::randn({kSamples, 1, 8, 8}, torch::kDouble),
            torch::randn({kSamples, 4}, torch::kDouble)};
  }
  /// Equal parts; or, with `uneven`, one sample fewer on rank 0 and one more on the last.
  Data of(int rank, int ranks, bool uneven = false) const {
    const std::int64_t each = kSamples / ranks;
    const std::int64_t shift = uneven ? 1 : 0;
    const std::int64_t begin = rank == 0 ? 0 : rank * each - shift;
    const std::int64_t end = rank == ranks - 1 ? kSamples : (rank + 1) * each - shift;
    return {inputs.slice(0, begin, end), targets.slice(0, begin, end)};
  }
  Data of(const comm::Communicator& c, bool uneven = false) const {
    return of(c.rank(), c.size(), uneven);
  }
  Data in(torch::ScalarType type) const {
    return {inputs.is_floating_point() ? inputs.to(type) : inputs, targets.to(type)};
  }
};

inline torch::Tensor loss_of_output(const torch::Tensor& output, const Data& data) {
  return (output - data.targets).square().sum() / static_cast<double>(data.inputs.size(0));
}
template <typename Model>
torch::Tensor loss_of(Model& net, const Data& data) {
  return loss_of_output(net(data.inputs), data);
}

inline KfacOptions kfac_options(InverseMethod method = InverseMethod::cholesky) {
  return {.loss_average = LossAverage{},
          .method = method,
          .factor_interval = 2,
          .inverse_interval = 4,
          .damping = 0.1,
          .kl_clip = 1e-2,
          .learning_rate = [](std::int64_t) { return kRate; }};
}

inline torch::optim::SGD optimizer_of(torch::nn::Module& net) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
}

/// On so many ranks, each of which runs `weights_of_rank(communicator)`: all end within `bound` of
/// `expected`. Prints the largest difference, which is the test's property, too.
template <typename Run>
void expect_weights(const std::string& what, int ranks, const std::vector<torch::Tensor>& expected,
                    Run&& weights_of_rank, double bound = 1e-9) {
  double largest = 0;
  std::mutex mutex;
  comm::run_ranks(ranks, [&](comm::Communicator& c) {
    const double mine = largest_difference(weights_of_rank(c), expected);
    const std::lock_guard lock(mutex);
    largest = std::max(largest, mine);
  });
  EXPECT_LT(largest, bound) << what << ", " << ranks << " ranks";
  const std::string name = fmt::format("{}, {} ranks", what, ranks);
  const std::string value = fmt::format("{:.1e}", largest);
  std::printf("[ max difference ] %s: %s\n", name.c_str(), value.c_str());
  ::testing::Test::RecordProperty("max difference: " + name, value);
}

/// Those that end where one rank with all samples does.
inline const std::vector<std::string>& strategies() {
  static const std::vector<std::string> all = {
      "kfac(d, factors=2, inverses=4)",
      "kfac(mpd, factors=2, inverses=4)",
      "kfac(mpd, fusion=none, broadcasts=fused, factors=2, inverses=4)",
      "kfac(mem, factors=2, inverses=4)",
      "kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
      "kfac(spd, factors=2, inverses=4)",
      "kfac(spd, fusion=greedy, placement=lbp2021, theta=10, factors=2, inverses=4)",
      "kfac(spd, fusion=none, placement=round-robin, factors=2, inverses=4)"};
  return all;
}

}  // namespace linerate::torch_adapter
