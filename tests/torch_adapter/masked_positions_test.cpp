// Labels that do not count: K-FAC takes the steps that it takes without their positions.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <array>

#include "linerate/core/error.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/exact_fisher.hpp"
#include "torch_adapter/warnings.hpp"

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

/// How a batch's loss is shown: the mask before the forward pass, or the targets behind it, with
/// the output in one of these shapes.
enum class Shown { mask, last, second, flat, flat_targets };

/// Forward pass, and what is said of its loss; the logits [..., classes].
torch::Tensor shown(KFAC& pre, Tagger& net, const Data& data, Shown how) {
  if (how == Shown::mask) pre.count_only(counted(data));
  const torch::Tensor logits = net(data.inputs);
  if (how == Shown::last) pre.loss_of(logits, data.targets, {.ignore_index = kIgnored});
  if (how == Shown::second) pre.loss_of(logits.movedim(-1, 1), data.targets);
  if (how == Shown::flat) pre.loss_of(logits.flatten(0, 1), data.targets.flatten());
  if (how == Shown::flat_targets) pre.loss_of(logits, data.targets.flatten());
  return logits;
}
constexpr std::array kShown{Shown::mask, Shown::last, Shown::second, Shown::flat,
                            Shown::flat_targets};

/// Steps of one rank. `masks`: the labels that do not count are still in the batch.
std::vector<torch::Tensor> alone(const Data& data, bool masks, Fisher fisher = Fisher::empirical,
                                 Shown how = Shown::mask) {
  Tagger net;
  KFAC pre(*net, options_of(masks ? Over::batch_positions : Over::batch, fisher));
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor logits = masks ? shown(pre, net, data, how) : net(data.inputs);
    if (fisher == Fisher::monte_carlo)
      exact_fisher(pre, masks ? logits.movedim(-1, 1) : logits, LossKind::softmax_cross_entropy);
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
  for (const Shown how : kShown)
    EXPECT_LT(largest_difference(alone(data, true, GetParam(), how), expected), 1e-12)
        << static_cast<int>(how);
}

INSTANTIATE_TEST_SUITE_P(Fishers, MaskedPositions,
                         ::testing::Values(Fisher::empirical, Fisher::monte_carlo));

TEST(MaskedPositions, CountAmongThoseOfAllRanks) {
  const Data data = sentences();
  const auto expected = alone(words_of(data), false);
  for (const int ranks : {2, 4})
    for (const auto& [kfac, how] : {std::pair{"d", Shown::mask},
                                    {"mpd", Shown::last},
                                    {"mem", Shown::second},
                                    {"hybrid, fraction=1/2", Shown::flat},
                                    {"spd", Shown::mask},
                                    {"spd", Shown::last},
                                    {"spd, fusion=none", Shown::flat_targets}}) {
      const std::string strategy = std::string("ddp+kfac(") + kfac + ", inverses=2)";
      expect_weights(strategy + ", masked", ranks, expected, [&, how = how](Communicator& c) {
        const Data mine = data.of(c);
        const auto labels = counted(mine).sum().item<std::int64_t>();
        Tagger net;
        KFAC pre(*net, options_of(Over::batch_positions));
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
        torch::optim::SGD optimizer = optimizer_of(*net);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          parallel.set_batch(labels);
          cross_entropy_of(shown(pre, net, mine, how), mine.targets).backward();
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
  pre.loss_of(logits.movedim(-1, 1), {.layout = OutputLayout::classes_second});
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

/// Sentences in passes with some labels each, or none: losses of their labels' mean over n passes
/// have the factors of all words that have a label.
TEST(MaskedPositions, OfAccumulatedPassesAreLeftOutOfEach) {
  Data data = sentences();
  data.targets.slice(0, 0, 4).fill_(kIgnored);  // all of a pass
  for (const Shown how : kShown) {
    Tagger net, other;
    KfacOptions options = options_of(Over::batch_positions);
    options.accumulate = 6;
    KFAC pre(*net, options), whole(*other, options_of(Over::batch));
    for (int i = 0; i < 6; ++i) {
      const Data part{data.inputs.slice(0, 4 * i, 4 * i + 4),
                      data.targets.slice(0, 4 * i, 4 * i + 4)};
      const torch::Tensor loss = cross_entropy_of(shown(pre, net, part, how), part.targets) / 6;
      loss.backward();
    }
    const Data words = words_of(data);
    cross_entropy_of(other(words.inputs), words.targets).backward();
    pre.step();
    whole.step();
    const KfacState ours = pre.save(), theirs = whole.save();
    for (std::size_t l = 0; l < ours.layers.size(); ++l)
      EXPECT_LT(largest_difference({ours.layers[l].a.average, ours.layers[l].g.average},
                                   {theirs.layers[l].a.average, theirs.layers[l].g.average}),
                1e-12)
          << static_cast<int>(how);
  }
}

/// Nothing is learnt of it, and nothing is not a number.
TEST(MaskedPositions, OfAWholeBatchLeaveTheAverages) {
  Data data = sentences();
  Data none = data;
  none.targets = torch::full_like(data.targets, kIgnored);
  for (const Shown how : kShown) {
    Tagger net;
    KFAC pre(*net, options_of(Over::batch_positions));
    const auto step = [&](const Data& batch) {
      net->zero_grad();
      cross_entropy_of(shown(pre, net, batch, how), batch.targets).backward();
      const KfacStep done = pre.step();
      EXPECT_FALSE(done.skipped);
      EXPECT_TRUE(done.failures.empty());
      return pre.save();
    };
    step(none);
    const KfacState first = step(data), second = step(none);
    for (std::size_t l = 0; l < first.layers.size(); ++l) {
      EXPECT_EQ(first.layers[l].a.updates, 1);
      EXPECT_EQ(second.layers[l].a.updates, 1);
      EXPECT_TRUE(torch::equal(first.layers[l].g.average, second.layers[l].g.average));
    }
  }
}

struct LayoutCase {
  std::vector<std::int64_t> output, target;  // target: empty if there is none
  std::optional<OutputLayout> said;
  double terms = 0;          // 0: an error
  std::string message = {};  // a part of it
};

/// M of a layer's G: its gradients times their number are those of a term.
TEST(MaskedPositions, TheLayoutFollowsFromTheTargets) {
  using enum OutputLayout;
  const std::string asks = "layout=\"classes_last\"";
  const std::vector<LayoutCase> cases = {
      {{6, 3}, {}, {}, 6},
      {{6, 3}, {6}, {}, 6},
      {{6, 3}, {2, 3}, {}, 6},
      {{2, 4, 3}, {2, 4}, {}, 8},
      {{2, 4, 3}, {8}, {}, 8},
      {{2, 4, 3}, {2, 3}, {}, 6},
      {{2, 4, 3}, {}, classes_last, 8},
      {{2, 4, 3}, {}, classes_second, 6},
      {{2, 4, 3}, {2, 4}, classes_last, 8},
      {{2, 4, 5, 3}, {2, 5, 3}, {}, 30},
      {{2, 4, 5, 3}, {2, 4, 5}, {}, 40},
      {{2, 3, 3}, {2, 3}, classes_last, 6},
      {{2, 3, 3}, {2, 3}, {}, 0, "fit both layouts"},
      {{2, 4, 3}, {}, {}, 0, asks},
      {{2, 4, 3}, {2, 4}, classes_second, 0, "does not fit"},
      {{2, 4, 3}, {2, 5}, {}, 0, "found targets [2, 5] for the output [2, 4, 3]"},
      {{6, 3}, {5}, {}, 0, "expected [6]"},
  };
  for (const LayoutCase& c : cases) {
    KfacOptions options = options_of(Over::batch_positions);
    torch::nn::Linear layer(4, c.output.back());
    layer->to(torch::kDouble);
    KFAC pre(*layer, options);
    std::vector<std::int64_t> in = c.output;
    in.back() = 4;
    const torch::Tensor output = layer(torch::randn(in, torch::kDouble));
    const LossView view{.layout = c.said};
    const std::string found = thrown_by([&] {
      if (c.target.empty())
        pre.loss_of(output, view);
      else
        pre.loss_of(output, torch::zeros(c.target, torch::kLong), view);
    });
    EXPECT_EQ(found.empty(), c.terms > 0) << found;
    if (c.terms == 0) {
      EXPECT_THAT(found, HasSubstr(c.message));
      continue;
    }
    (output.square().sum() / 2 / c.terms).backward();
    pre.step();
    const torch::Tensor rows = output.detach().flatten(0, -2);
    const torch::Tensor g = rows.t().matmul(rows) / c.terms;
    const torch::Tensor upper = g.index({torch::ones_like(g, torch::kBool).triu()});
    EXPECT_LT((pre.save().layers[0].g.average - upper).abs().max().item<double>(), 1e-12);
  }
}

TEST(MaskedPositions, ThatComeTooLateAreRefused) {
  const Data data = sentences();
  Tagger net;
  KFAC pre(*net, options_of(Over::batch_positions));
  torch::Tensor logits = net(data.inputs);
  pre.loss_of(logits, {.layout = OutputLayout::classes_last});
  cross_entropy_of(logits, data.targets.clamp_min(0)).backward();
  pre.step();
  logits = net(data.inputs);  // the first batch had no targets
  EXPECT_THAT(thrown_by([&] { pre.loss_of(logits, data.targets); }), HasSubstr("every batch"));
  logits = net(data.inputs);
  pre.loss_of(logits, {.layout = OutputLayout::classes_last});
  cross_entropy_of(logits, data.targets.clamp_min(0)).backward();
  EXPECT_THAT(thrown_by([&] { pre.loss_of(logits, data.targets); }), HasSubstr("between"));
}

TEST(MaskedPositions, OfAnotherShapeAreRefused) {
  Tagger net;
  KFAC pre(*net, options_of(Over::batch_positions, Fisher::monte_carlo));
  EXPECT_THAT(thrown_by([&] {
                pre.count_only(torch::ones({2, 3}));
              }),
              HasSubstr("!= ignore_index"));
  EXPECT_THAT(thrown_by([&] {
                pre.count_only(torch::ones({2, 3}, torch::kBool));
                const torch::Tensor logits = net(torch::zeros({2, 4}, torch::kLong));
                exact_fisher(pre, logits.movedim(-1, 1), LossKind::softmax_cross_entropy);
              }),
              HasSubstr("labels [2, 3], the loss's output is [2, 5, 4]"));
  KfacOptions reducing = options_of(Over::batch_positions);
  EXPECT_THAT(thrown_by([&] {
                pre.loss_of(net(torch::zeros({2, 4}, torch::kLong)));
              }),
              HasSubstr("layout=\"classes_last\""));
  reducing.shared_positions = SharedPositions::reduce;
  KFAC reduces(*net, reducing);
  EXPECT_THAT(thrown_by([&] {
                reduces.count_only(torch::ones({2, 3}, torch::kBool));
              }),
              HasSubstr("use expand"));
}

}  // namespace
}  // namespace linerate::torch_adapter
