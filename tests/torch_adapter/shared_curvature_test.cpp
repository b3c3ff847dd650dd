// K-FAC shared among ranks: every strategy takes the steps that one rank with all samples takes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

constexpr std::int64_t kSamples = 24, kSteps = 10;
constexpr double kRate = 0.05;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).stride(2)));
    hidden = register_module("hidden", torch::nn::Linear(27, 8));
    head = register_module("head", torch::nn::Linear(8, 4));
    to(torch::kDouble);
    // Ranks are threads of one process and share its generator.
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (torch::Tensor& p : parameters())
      p.copy_((torch::arange(p.numel(), torch::kDouble) * 1.7 + ++phase).sin().view(p.sizes()) *
              0.4);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(hidden(torch::tanh(conv(x)).flatten(1))));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

struct Data {
  torch::Tensor inputs, targets;
  static Data whole() {
    torch::manual_seed(3);
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
};

torch::Tensor loss_of(Net& net, const Data& data) {
  return (net(data.inputs) - data.targets).square().sum() /
         static_cast<double>(data.inputs.size(0));
}

KfacOptions kfac_options() {
  return {.loss_average = LossAverage{},
          .factor_interval = 2,
          .inverse_interval = 4,
          .damping = 0.1,
          .kl_clip = 1e-2,
          .learning_rate = [](std::int64_t) { return kRate; }};
}

torch::optim::SGD optimizer_of(Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
}

/// The weights of some steps of one rank that has all samples.
std::vector<torch::Tensor> alone(const Data& data) {
  Net net;
  KFAC pre(*net, kfac_options());
  torch::optim::SGD optimizer = optimizer_of(net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net, data).backward();
    pre.step();
    optimizer.step();
  }
  std::vector<torch::Tensor> weights;
  for (const auto& p : net->parameters()) weights.push_back(p.detach().clone());
  return weights;
}

std::vector<torch::Tensor> shared(Communicator& communicator, const std::string& strategy,
                                  const Data& mine, bool uneven = false) {
  Net net;
  KFAC pre(*net, kfac_options());
  DataParallel parallel(*net, communicator, {.strategy = strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer = optimizer_of(net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (uneven) parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    parallel.finish();
    pre.step();
    optimizer.step();
  }
  std::vector<torch::Tensor> weights;
  for (const auto& p : net->parameters()) weights.push_back(p.detach().clone());
  return weights;
}

double largest_difference(const std::vector<torch::Tensor>& a,
                          const std::vector<torch::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

const std::vector<std::string>& strategies() {
  static const std::vector<std::string> all = {
      "kfac(d, factors=2, inverses=4)",
      "kfac(mpd, factors=2, inverses=4)",
      "kfac(mem, factors=2, inverses=4)",
      "kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
      "kfac(spd, factors=2, inverses=4)",
      "kfac(spd, fusion=greedy, placement=lbp2021, theta=10, factors=2, inverses=4)",
      "kfac(spd, fusion=none, placement=round-robin, factors=2, inverses=4)"};
  return all;
}

class SharedCurvature : public testing::TestWithParam<int> {};

TEST_P(SharedCurvature, EveryStrategyTakesTheStepsOfOneRankWithAllSamples) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  for (const char* exchange : {"ddp+", "ddp(first=64B,bucket=512B)+", "bulk+"})
    for (const std::string& kfac : strategies())
      comm::run_ranks(GetParam(), [&](Communicator& c) {
        const auto weights = shared(c, exchange + kfac, data.of(c.rank(), c.size()));
        EXPECT_LT(largest_difference(weights, expected), 1e-9) << exchange << kfac;
      });
}

TEST_P(SharedCurvature, WeighsRanksByTheirSamples) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  for (const std::string& kfac : strategies())
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto weights = shared(c, "ddp+" + kfac, data.of(c.rank(), c.size(), true), true);
      EXPECT_LT(largest_difference(weights, expected), 1e-9) << kfac;
    });
}

/// Each factor sees the samples of one rank alone.
TEST_P(SharedCurvature, DpTakesThemWhereAllRanksSeeTheSame) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    const std::string strategy = "ddp+kfac(dp, factors=2, inverses=4)";
    EXPECT_LT(largest_difference(shared(c, strategy, data), expected), 1e-9);
    const auto other = shared(c, strategy, data.of(c.rank(), c.size()));
    EXPECT_GT(largest_difference(other, expected), 1e-6);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedCurvature, testing::Values(2, 4));

TEST(SharedCurvature, OfAPreconditionerThatNobodySharesIsRefused) {
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KFAC pre(*net, kfac_options());
    const auto refused = [&](const std::string& strategy, KFAC* given) -> std::string {
      try {
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = given});
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_THAT(refused("ddp", &pre), HasSubstr("+kfac(spd)"));
    EXPECT_THAT(refused("ddp+kfac(spd)", nullptr), HasSubstr("construct a KFAC"));
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
