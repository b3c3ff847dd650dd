// Layers that some ranks use, or none, more than once, frozen and thawed, by sequences of unequal
// length in unequal batches: ranks take the steps of one rank with the joined batch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "linerate/torch_adapter/state_check.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/exact_fisher.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using Over = LossAverage::Over;
using ::testing::HasSubstr;

constexpr int kUseSteps = 8;

struct RandomStep {
  std::vector<BranchBatch> ranks;
  std::array<bool, 2> frozen{};
};

/// Rank 0 always has samples.
std::vector<RandomStep> random_steps(std::int64_t seed, int ranks) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  std::vector<RandomStep> steps(kUseSteps);
  for (RandomStep& step : steps) {
    for (int rank = 0; rank < ranks; ++rank)
      step.ranks.push_back(random_batch(rank == 0 ? 1 + drawn_below(4) : drawn_below(5)));
    for (bool& frozen : step.frozen) frozen = drawn_below(4) == 0;
  }
  return steps;
}

KfacOptions uses_options(int factors, int inverses) {
  KfacOptions options = kfac_options();
  options.factor_interval = factors;
  options.inverse_interval = inverses;
  return options;
}

/// One rank with all batches, in so many backward passes, or as many as have samples: a loss that
/// is their mean over all samples.
TrainedCurvature joined(const std::vector<RandomStep>& steps, KfacOptions options,
                        bool in_passes = false) {
  const auto passes = [&](std::int64_t s) {
    const auto& batches = steps[to_index(s)].ranks;
    return static_cast<double>(std::count_if(batches.begin(), batches.end(),
                                             [](const auto& b) { return b.targets.size(0) > 0; }));
  };
  if (in_passes) options.accumulate = passes;
  Program<BranchNet> program(nullptr, {.options = options});
  for (std::size_t s = 0; s < steps.size(); ++s) {
    double samples = 0;
    for (const BranchBatch& batch : steps[s].ranks)
      samples += static_cast<double>(batch.targets.size(0));
    program.optimizer.zero_grad();
    program.net->freeze(steps[s].frozen);
    torch::Tensor all = torch::zeros({}, torch::kDouble);
    for (const BranchBatch& batch : steps[s].ranks) {
      const auto mine = static_cast<double>(batch.targets.size(0));
      if (mine == 0) continue;
      const torch::Tensor loss = loss_of(program.net, batch) * (mine / samples);
      program.pre->set_loss_terms(in_passes ? samples / passes(static_cast<std::int64_t>(s))
                                            : samples);
      if (in_passes)
        loss.backward();
      else
        all = all + loss;
    }
    if (!in_passes) all.backward();
    EXPECT_FALSE(program.update().skipped);
  }
  return program.ended();
}

TrainedCurvature on_ranks(Communicator& c, const std::string& strategy,
                          const std::vector<RandomStep>& steps, const KfacOptions& options) {
  Program<BranchNet> program(&c, {.strategy = strategy, .options = options, .uneven = true});
  for (const RandomStep& step : steps) {
    program.net->freeze(step.frozen);
    EXPECT_FALSE(program.step(step.ranks[to_index(c.rank())]).skipped);
  }
  return program.ended();
}

class CurvatureUses : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureUses, EveryStrategyTakesTheStepsOfOneRankWithTheJoinedBatch) {
  const int ranks = GetParam();
  const std::string hybrid = ranks == 3 ? "hybrid, fraction=0.34" : "hybrid, fraction=0.5";
  for (const auto& [seed, factors, inverses] :
       {std::array{1, 1, 1}, std::array{2, 1, 2}, std::array{3, 2, 4}})
    for (const std::string& sharing :
         std::vector<std::string>{"d", "mpd", "mem", hybrid, "spd", "dp"}) {
      const KfacOptions options = uses_options(factors, inverses);
      std::vector<RandomStep> steps = random_steps(seed, ranks), one = steps;
      if (sharing == "dp")  // each factor sees the samples of one rank alone
        for (std::size_t s = 0; s < steps.size(); ++s) {
          one[s].ranks.resize(1);
          std::fill(steps[s].ranks.begin(), steps[s].ranks.end(), one[s].ranks[0]);
        }
      const TrainedCurvature expected = joined(one, options);
      const std::string strategy =
          fmt::format("ddp+kfac({}, factors={}, inverses={})", sharing, factors, inverses);
      expect_weights(fmt::format("{}, random uses {}", strategy, seed), ranks, expected.weights,
                     [&](Communicator& c) {
                       const TrainedCurvature ended = on_ranks(c, strategy, steps, options);
                       // Owners hold what no other rank does; the state is that of all of them.
                       require_same_tensors(c, strategy, to_tensors(ended.state));
                       expect_same_tensors(to_tensors(ended.state), to_tensors(expected.state),
                                           strategy, 1e-9);
                       return ended.weights;
                     });
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureUses, ::testing::Values(1, 2, 3, 4));

/// A rank's batches of a step in turn, each loss divided by their number, in `accumulate()` but for
/// the last or not: the steps of one rank with all samples at once. The number is said by the
/// strategy or by the option; all gradients are scaled by a scale that changes from step to step.
TEST_P(CurvatureUses, AccumulatedBatchesTakeTheStepsOfTheJoinedOne) {
  constexpr int kPasses = 2;
  const Data data = Data::whole();
  const auto scale_of = [](std::int64_t step) {
    return std::ldexp(1.0, static_cast<int>(step % 5));
  };
  const std::vector<torch::Tensor> expected = trained(nullptr, data).weights;
  const Warnings said;
  bool in_text = false, all_exchange = false;
  for (const std::string& kfac : strategies()) {
    if (GetParam() == 3 && kfac.find("hybrid") != std::string::npos) continue;
    in_text = !in_text;
    if (in_text) all_exchange = !all_exchange;
    const std::string with =
        in_text ? kfac.substr(0, kfac.size() - 1) + fmt::format(", accumulate={})", kPasses) : kfac;
    expect_weights(
        with + ", accumulated", GetParam(), expected,
        [&](Communicator& c) {
          CurvatureJob job{.strategy = "ddp+" + with};
          if (!in_text) job.options.accumulate = kPasses;
          job.options.loss_scale = job.options.gradient_scale = scale_of;
          Program<> program(&c, job);
          const Data here = data.of(c);
          for (int step = 0; step < kSteps; ++step) {
            program.optimizer.zero_grad();
            for (int k = 0; k < kPasses; ++k) {
              const auto pass = [&] {
                (loss_of(program.net, here.of(k, kPasses)) * (scale_of(step) / kPasses)).backward();
              };
              k + 1 == kPasses || all_exchange ? pass() : program.parallel->accumulate(pass);
            }
            program.parallel->finish();
            program.pre->step();
            for (const torch::Tensor& p : program.net->parameters())
              p.mutable_grad().div_(scale_of(step));
            program.optimizer.step();
          }
          return weights_of(*program.net);
        },
        1e-12);
  }
  EXPECT_THAT(said.with("backward passes"), ::testing::IsEmpty());
}

/// Losses that are weighted by their samples: terms are a mean over the passes, too.
TEST(CurvatureUses, UnequalPassesOfOneRankTakeTheStepsOfTheJoinedBatch) {
  const std::vector<RandomStep> steps = random_steps(6, 4);
  EXPECT_LT(largest_difference(joined(steps, uses_options(2, 4), /*in_passes=*/true).weights,
                               joined(steps, uses_options(2, 4)).weights),
            1e-12);
}

// ---- Labels that do not count: K-FAC takes the steps that it takes without their positions.

/// A class for each word, which looks at no other: [...] -> [..., 5].
torch::nn::Sequential tagger() {
  torch::nn::Sequential net(torch::nn::Embedding(11, 6), torch::nn::Tanh(), torch::nn::Linear(6, 7),
                            torch::nn::Tanh(), torch::nn::Linear(7, 5));
  set_weights(*net);
  return net;
}

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
  KfacOptions options = uses_options(1, 2);
  options.loss_average = LossAverage{.over = average};
  options.fisher = fisher;
  options.kl_clip.reset();
  return options;
}

/// How a batch's loss is shown: not at all; the mask before the forward pass; or the targets behind
/// it, with the output in one of these shapes.
enum class Shown { nothing, mask, last, second, flat, flat_targets };
constexpr std::array kShown{Shown::mask, Shown::last, Shown::second, Shown::flat,
                            Shown::flat_targets};

/// A training with the labels that count, or with all positions of which some do not.
struct Tagging : Program<torch::nn::Sequential> {
  explicit Tagging(Shown shown, const KfacOptions& options, Communicator* c = nullptr,
                   const std::string& strategy = "")
      : Program(c, {.strategy = strategy, .options = options}, torch::kDouble, tagger()),
        how(shown) {}
  explicit Tagging(Shown shown, Fisher fisher = Fisher::empirical)
      : Tagging(shown,
                options_of(shown == Shown::nothing ? Over::batch : Over::batch_positions, fisher)) {
  }

  /// The batch's part of a step's loss.
  void pass(const Data& data, double part = 1) {
    if (how == Shown::mask) pre->count_only(counted(data));
    const torch::Tensor logits = net->forward(data.inputs);
    if (how == Shown::last) pre->loss_of(logits, data.targets, {.ignore_index = kIgnored});
    if (how == Shown::second) pre->loss_of(logits.movedim(-1, 1), data.targets);
    if (how == Shown::flat) pre->loss_of(logits.flatten(0, 1), data.targets.flatten());
    if (how == Shown::flat_targets) pre->loss_of(logits, data.targets.flatten());
    if (job.options.fisher == Fisher::monte_carlo)
      exact_fisher(*pre, logits.dim() > 2 ? logits.movedim(-1, 1) : logits,
                   LossKind::softmax_cross_entropy);
    (cross_entropy_of(logits, data.targets) * part).backward();
  }
  /// With labels that all count; the logits.
  torch::Tensor pass_of_all(const Data& data) {
    const torch::Tensor logits = net->forward(data.inputs);
    if (how != Shown::nothing)
      pre->loss_of(logits.movedim(-1, 1), {.layout = OutputLayout::classes_second});
    cross_entropy_of(logits, data.targets.clamp_min(0)).backward();
    return logits;
  }
  KfacStep step(const Data& data) {
    optimizer.zero_grad();
    pass(data);
    if (parallel) parallel->finish();
    return update();
  }
  std::vector<torch::Tensor> steps(const Data& data) {
    for (int k = 0; k < kSteps; ++k) {
      if (parallel) parallel->set_batch(counted(data).sum().item<std::int64_t>());
      step(data);
    }
    return weights();
  }

  Shown how;
};

class MaskedPositions : public ::testing::TestWithParam<Fisher> {};

TEST_P(MaskedPositions, AreLeftOutOfBothFactorsAndOfTheTerms) {
  const Data data = sentences();
  ASSERT_LT(counted(data).sum().item<std::int64_t>(), kSamples * kWords - 5);
  const auto expected = Tagging(Shown::nothing, GetParam()).steps(words_of(data));
  for (const Shown how : kShown)
    EXPECT_LT(largest_difference(Tagging(how, GetParam()).steps(data), expected), 1e-12)
        << static_cast<int>(how);
}

INSTANTIATE_TEST_SUITE_P(Fishers, MaskedPositions,
                         ::testing::Values(Fisher::empirical, Fisher::monte_carlo));

TEST(MaskedPositions, CountAmongThoseOfAllRanks) {
  const Data data = sentences();
  const auto expected = Tagging(Shown::nothing).steps(words_of(data));
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
        return Tagging(how, options_of(Over::batch_positions), &c, strategy).steps(data.of(c));
      });
    }
}

/// The batch behind it has none.
TEST(MaskedPositions, AreOfOneBatch) {
  const Data data = sentences(), words = words_of(data);
  Tagging masked(Shown::mask), whole(Shown::nothing);
  masked.pass(data), whole.pass(words);
  masked.pre->step(), whole.pre->step();
  masked.pass_of_all(data);
  whole.pass_of_all({data.inputs.flatten(), data.targets.flatten()});
  masked.pre->step(), whole.pre->step();
  for (std::size_t p = 0; p < masked.net->parameters().size(); ++p)
    EXPECT_LT(largest_difference({masked.net->parameters()[p].grad()},
                                 {whole.net->parameters()[p].grad()}),
              1e-12);
}

/// Sentences in passes with some labels each, or none: losses of their labels' mean over n passes
/// have the factors of all words that have a label.
TEST(MaskedPositions, OfAccumulatedPassesAreLeftOutOfEach) {
  const Data data = sentences();
  data.targets.slice(0, 0, 4).fill_(kIgnored);  // all of a pass
  KfacOptions options = options_of(Over::batch_positions);
  options.accumulate = 6;
  Tagging whole(Shown::nothing);
  whole.step(words_of(data));
  for (const Shown how : kShown) {
    Tagging program(how, options);
    for (int i = 0; i < 6; ++i) program.pass(data.of(i, 6), 1.0 / 6);
    program.pre->step();
    expect_same_tensors(to_tensors(program.state()), to_tensors(whole.state()),
                        fmt::format("shown as {}", static_cast<int>(how)), 1e-12);
  }
}

/// Nothing is learnt of it, and nothing is not a number.
TEST(MaskedPositions, OfAWholeBatchLeaveTheAverages) {
  const Data data = sentences(), none{data.inputs, torch::full_like(data.targets, kIgnored)};
  for (const Shown how : kShown) {
    Tagging program(how);
    const auto state_after = [&](const Data& batch) {
      program.optimizer.zero_grad();
      program.pass(batch);
      const KfacStep done = program.pre->step();
      EXPECT_FALSE(done.skipped);
      EXPECT_THAT(done.failures, ::testing::IsEmpty());
      return program.state();
    };
    state_after(none);
    const KfacState first = state_after(data), second = state_after(none);
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
    torch::nn::Linear layer(4, c.output.back());
    layer->to(torch::kDouble);
    KFAC pre(*layer, options_of(Over::batch_positions));
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
  Tagging program(Shown::mask);
  const auto refused = [&](const torch::Tensor& logits) {
    return thrown_by([&] { program.pre->loss_of(logits, data.targets); });
  };
  program.pass_of_all(data);
  program.pre->step();
  // The first batch had no targets.
  EXPECT_THAT(refused(program.net->forward(data.inputs)), HasSubstr("every batch"));
  EXPECT_THAT(refused(program.pass_of_all(data)), HasSubstr("between"));
}

TEST(MaskedPositions, OfAnotherShapeAreRefused) {
  const torch::Tensor mask = torch::ones({2, 3}, torch::kBool);
  torch::nn::Sequential net = tagger();
  const auto logits = [&] { return net->forward(torch::zeros({2, 4}, torch::kLong)); };
  KFAC pre(*net, options_of(Over::batch_positions, Fisher::monte_carlo));
  EXPECT_THAT(thrown_by([&] {
                pre.count_only(torch::ones({2, 3}));
              }),
              HasSubstr("!= ignore_index"));
  EXPECT_THAT(thrown_by([&] {
                pre.count_only(mask);
                exact_fisher(pre, logits().movedim(-1, 1), LossKind::softmax_cross_entropy);
              }),
              HasSubstr("labels [2, 3], the loss's output is [2, 5, 4]"));
  EXPECT_THAT(thrown_by([&] { pre.loss_of(logits()); }), HasSubstr("layout=\"classes_last\""));
  KfacOptions reducing = options_of(Over::batch_positions);
  reducing.shared_positions = SharedPositions::reduce;
  KFAC reduces(*net, reducing);
  EXPECT_THAT(thrown_by([&] { reduces.count_only(mask); }), HasSubstr("use expand"));
}

}  // namespace
}  // namespace linerate::torch_adapter
