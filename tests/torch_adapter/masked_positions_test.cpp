// Labels that do not count: K-FAC takes the steps that it takes without their positions.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"
#include "torch_adapter/curvature_nets.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;
using Over = LossAverage::Over;

constexpr std::int64_t kSentences = 8, kWords = 6, kSteps = 6;
constexpr std::int64_t kIgnored = -100;
constexpr double kRate = 0.1;

/// Of every sentence some words have no label, most in the first ones.
struct Data {
  torch::Tensor words, labels;
  static Data whole() {
    torch::manual_seed(5);
    Data data{torch::randint(11, {kSentences, kWords}), torch::randint(5, {kSentences, kWords})};
    const auto draw = torch::rand({kSentences, kWords}) *
                      torch::linspace(0.4, 1.4, kSentences).unsqueeze(1).expand({-1, kWords});
    data.labels.masked_fill_(draw < 0.3, kIgnored);
    return data;
  }
  torch::Tensor counted() const { return labels != kIgnored; }
  Data slice(std::int64_t begin, std::int64_t end) const {
    return {words.slice(0, begin, end), labels.slice(0, begin, end)};
  }
  /// The words that have a label, a sample each.
  Data alone() const { return {words.index({counted()}), labels.index({counted()})}; }
};

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& labels) {
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

torch::optim::SGD optimizer_of(Tagger& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
}

/// Steps of one rank. `masks`: the labels that do not count are still in the batch.
std::vector<torch::Tensor> alone(const Data& data, bool masks, Fisher fisher = Fisher::empirical) {
  Tagger net;
  KFAC pre(*net, options_of(masks ? Over::batch_positions : Over::batch, fisher));
  torch::optim::SGD optimizer = optimizer_of(net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (masks) pre.count_only(data.counted());
    const torch::Tensor logits = net(data.words);
    if (fisher == Fisher::exact)
      pre.exact_fisher(masks ? logits.movedim(-1, 1) : logits, LossKind::softmax_cross_entropy);
    loss_of(logits, data.labels).backward();
    pre.step();
    optimizer.step();
  }
  return weights_of(*net);
}

class MaskedPositions : public ::testing::TestWithParam<Fisher> {};

TEST_P(MaskedPositions, AreLeftOutOfBothFactorsAndOfTheTerms) {
  const Data data = Data::whole();
  ASSERT_LT(data.counted().sum().item<std::int64_t>(), kSentences * kWords - 5);
  const auto expected = alone(data.alone(), false, GetParam());
  EXPECT_LT(largest_difference(alone(data, true, GetParam()), expected), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Fishers, MaskedPositions,
                         ::testing::Values(Fisher::empirical, Fisher::exact));

TEST(MaskedPositions, CountAmongThoseOfAllRanks) {
  const Data data = Data::whole();
  const auto expected = alone(data.alone(), false);
  for (const int ranks : {2, 4})
    for (const char* kfac : {"d", "mpd", "mem", "hybrid, fraction=0.5", "spd"})
      comm::run_ranks(ranks, [&](Communicator& c) {
        const std::int64_t each = kSentences / c.size();
        const Data mine = data.slice(c.rank() * each, (c.rank() + 1) * each);
        const auto labels = mine.counted().sum().item<std::int64_t>();
        Tagger net;
        KFAC pre(*net, options_of(Over::batch_positions));
        const std::string strategy = std::string("ddp+kfac(") + kfac + ", inverses=2)";
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
        torch::optim::SGD optimizer = optimizer_of(net);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          parallel.set_batch(labels);
          pre.count_only(mine.counted());
          loss_of(net(mine.words), mine.labels).backward();
          parallel.step(pre, optimizer);
        }
        EXPECT_LT(largest_difference(weights_of(*net), expected), 1e-9) << strategy;
      });
}

/// The batch behind it has none.
TEST(MaskedPositions, AreOfOneBatch) {
  const Data data = Data::whole();
  Tagger net;
  KFAC pre(*net, options_of(Over::batch_positions));
  pre.count_only(data.counted());
  loss_of(net(data.words), data.labels).backward();
  pre.step();
  const torch::Tensor logits = net(data.words);
  pre.loss_of(logits.movedim(-1, 1));  // of all positions
  loss_of(logits, data.labels.clamp_min(0)).backward();
  pre.step();
  Tagger other;
  KFAC whole(*other, options_of(Over::batch));
  const Data counted = data.alone();
  loss_of(other(counted.words), counted.labels).backward();
  whole.step();
  loss_of(other(data.words.flatten()), data.labels.clamp_min(0).flatten()).backward();
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
