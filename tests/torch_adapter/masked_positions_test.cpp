// Labels that do not count: K-FAC takes the steps that it takes without their positions.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;
using Over = LossAverage::Over;

constexpr std::int64_t kWords = 6;
constexpr std::int64_t kIgnored = -100;

/// Sentences; of each some words have no label, most in the first ones.
Data sentences() {
  torch::manual_seed(5);
  Data data{torch::randint(11, {kSamples, kWords}), torch::randint(5, {kSamples, kWords})};
  const auto draw = torch::rand({kSamples, kWords}) *
                    torch::linspace(0.4, 1.4, kSamples).unsqueeze(1).expand({-1, kWords});
  data.targets.masked_fill_(draw < 0.3, kIgnored);
  return data;
}
torch::Tensor counted(const Data& data) { return data.targets != kIgnored; }
/// The words that have a label, a sample each.
Data words_of(const Data& data) {
  return {data.inputs.index({counted(data)}), data.targets.index({counted(data)})};
}

torch::Tensor cross_entropy_of(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::nn::functional::cross_entropy(
      logits.flatten(0, -2), labels.flatten(),
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kIgnored));
}

KfacOptions options_of(Over average, Fisher fisher = Fisher::empirical) {
  return {.loss_average = LossAverage{.over = average},
          .fisher = fisher,
          .factor_interval = 1,
          .inverse_interval = 2,
          .damping = 0.1,
          .learning_rate = [](std::int64_t) { return kRate; }};
}

/// Steps of one rank. `masks`: the labels that do not count are still in the batch.
std::vector<torch::Tensor> alone(const Data& data, bool masks, Fisher fisher = Fisher::empirical) {
  Tagger net;
  KFAC pre(*net, options_of(masks ? Over::batch_positions : Over::batch, fisher));
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (masks) pre.count_only(counted(data));
    const torch::Tensor logits = net(data.inputs);
    if (fisher == Fisher::exact)
      pre.exact_fisher(masks ? logits.movedim(-1, 1) : logits, LossKind::softmax_cross_entropy);
    cross_entropy_of(logits, data.targets).backward();
    pre.step();
    optimizer.step();
  }
  return weights_of(*net);
}

class MaskedPositions : public ::testing::TestWithParam<Fisher> {};

TEST_P(MaskedPositions, AreLeftOutOfBothFactorsAndOfTheTerms) {
  const Data data = sentences();
  ASSERT_LT(counted(data).sum().item<std::int64_t>(), kSamples * kWords - 5);
  const auto expected = alone(words_of(data), false, GetParam());
  EXPECT_LT(largest_difference(alone(data, true, GetParam()), expected), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Fishers, MaskedPositions,
                         ::testing::Values(Fisher::empirical, Fisher::exact));

TEST(MaskedPositions, CountAmongThoseOfAllRanks) {
  const Data data = sentences();
  const auto expected = alone(words_of(data), false);
  for (const int ranks : {2, 4})
    for (const char* kfac : {"d", "mpd", "mem", "hybrid, fraction=0.5", "spd"}) {
      const std::string strategy = std::string("ddp+kfac(") + kfac + ", inverses=2)";
      expect_weights(strategy + ", masked", ranks, expected, [&](Communicator& c) {
        const Data mine = data.of(c);
        const auto labels = counted(mine).sum().item<std::int64_t>();
        Tagger net;
        KFAC pre(*net, options_of(Over::batch_positions));
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
        torch::optim::SGD optimizer = optimizer_of(*net);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          parallel.set_batch(labels);
          pre.count_only(counted(mine));
          cross_entropy_of(net(mine.inputs), mine.targets).backward();
          parallel.step(pre, optimizer);
        }
        return weights_of(*net);
      });
    }
}

/// The batch behind it has none.
TEST(MaskedPositions, AreOfOneBatch) {
  const Data data = sentences();
  Tagger net;
  KFAC pre(*net, options_of(Over::batch_positions));
  pre.count_only(counted(data));
  cross_entropy_of(net(data.inputs), data.targets).backward();
  pre.step();
  const torch::Tensor logits = net(data.inputs);
  pre.loss_of(logits.movedim(-1, 1));  // of all positions
  cross_entropy_of(logits, data.targets.clamp_min(0)).backward();
  pre.step();
  Tagger other;
  KFAC whole(*other, options_of(Over::batch));
  const Data words = words_of(data);
  cross_entropy_of(other(words.inputs), words.targets).backward();
  whole.step();
  cross_entropy_of(other(data.inputs.flatten()), data.targets.clamp_min(0).flatten()).backward();
  whole.step();
  for (std::size_t p = 0; p < net->parameters().size(); ++p)
    EXPECT_LT(
        (net->parameters()[p].grad() - other->parameters()[p].grad()).abs().max().item<double>(),
        1e-12);
}

TEST(MaskedPositions, OfAnotherShapeAreRefused) {
  Tagger net;
  KFAC pre(*net, options_of(Over::batch_positions, Fisher::exact));
  const auto message = [](auto&& run) -> std::string {
    try {
      run();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { pre.count_only(torch::ones({2, 3})); }), HasSubstr("!= ignore_index"));
  EXPECT_THAT(message([&] {
                pre.count_only(torch::ones({2, 3}, torch::kBool));
                const torch::Tensor logits = net(torch::zeros({2, 4}, torch::kLong));
                pre.exact_fisher(logits.movedim(-1, 1), LossKind::softmax_cross_entropy);
              }),
              HasSubstr("labels [2, 3], the loss's output is [2, 5, 4]"));
  KfacOptions reducing = options_of(Over::batch_positions);
  reducing.shared_positions = SharedPositions::reduce;
  KFAC reduces(*net, reducing);
  EXPECT_THAT(message([&] {
                reduces.count_only(torch::ones({2, 3}, torch::kBool));
              }),
              HasSubstr("use expand"));
}

}  // namespace
}  // namespace linerate::torch_adapter
