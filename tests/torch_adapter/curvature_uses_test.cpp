// Layers that some ranks use, or none, more than once, frozen and thawed, by sequences of unequal
// length in unequal batches: ranks take the steps of one rank with the joined batch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "linerate/core/random.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/exact_fisher.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using Over = LossAverage::Over;
using ::testing::HasSubstr;

constexpr std::size_t kBranches = 2;
constexpr int kUseSteps = 8;

/// Words, a norm layer and a trunk for every position; branches that a pass may leave out or
/// repeat; a head for the mean over positions.
struct BranchNetImpl : torch::nn::Module {
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(11, 6));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(6, 7));
  std::array<torch::nn::Linear, kBranches> branches = {
      register_module("branch0", torch::nn::Linear(7, 7)),
      register_module("branch1", torch::nn::Linear(7, 7))};
  torch::nn::Linear head = register_module("head", torch::nn::Linear(7, 4));
  BranchNetImpl() {
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x, const std::array<int, kBranches>& uses) {
    torch::Tensor h = torch::tanh(trunk(norm(words(x))));
    for (std::size_t b = 0; b < kBranches; ++b)
      for (int use = 0; use < uses[b]; ++use) h = torch::tanh(branches[b](h));
    return head(h.mean(1));
  }
  void freeze(const std::array<bool, kBranches>& frozen) {
    for (std::size_t b = 0; b < kBranches; ++b)
      for (torch::Tensor& p : branches[b]->parameters()) p.set_requires_grad(!frozen[b]);
  }
};
TORCH_MODULE(BranchNet);

/// What a rank computes in a step.
struct RankBatch {
  torch::Tensor words, targets;  // [samples, positions], [samples, 4]
  std::array<int, kBranches> uses{};

  std::int64_t samples() const { return words.size(0); }
};
struct RandomStep {
  std::vector<RankBatch> ranks;
  std::array<bool, kBranches> frozen{};

  std::int64_t samples() const {
    std::int64_t all = 0;
    for (const RankBatch& batch : ranks) all += batch.samples();
    return all;
  }
};

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::uint64_t n) {
    return static_cast<std::int64_t>(random_below(seed_, next_++, n));
  }
  torch::Tensor reals(std::int64_t rows, std::int64_t columns) {
    torch::Tensor t = torch::empty({rows, columns}, torch::kDouble);
    for (std::int64_t i = 0; i < t.numel(); ++i)
      t.data_ptr<double>()[i] = 2 * random_unit(seed_, next_++) - 1;
    return t;
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

/// `alike`: every rank has the batch of the first.
std::vector<RandomStep> random_steps(std::uint64_t seed, int ranks, bool alike) {
  Draws draw(seed);
  std::vector<RandomStep> steps(kUseSteps);
  for (RandomStep& step : steps) {
    for (int rank = 0; rank < ranks; ++rank) {
      // Rank 0 always has samples.
      const std::int64_t samples = rank == 0 ? 1 + draw.below(4) : draw.below(5);
      RankBatch batch{torch::zeros({samples, 1 + draw.below(6)}, torch::kLong),
                      draw.reals(samples, 4)};
      for (std::int64_t i = 0; i < batch.words.numel(); ++i)
        batch.words.data_ptr<std::int64_t>()[i] = draw.below(11);
      for (int& uses : batch.uses) uses = static_cast<int>(draw.below(3));
      step.ranks.push_back(alike && rank > 0 ? step.ranks.front() : batch);
    }
    for (bool& frozen : step.frozen) frozen = draw.below(4) == 0;
  }
  return steps;
}

torch::Tensor loss_of_batch(BranchNet& net, const RankBatch& batch) {
  return (net->forward(batch.words, batch.uses) - batch.targets).square().sum() /
         static_cast<double>(batch.samples());
}

KfacOptions uses_options(int factors, int inverses) {
  KfacOptions options = kfac_options();
  options.factor_interval = factors;
  options.inverse_interval = inverses;
  return options;
}

struct Ended {
  std::vector<torch::Tensor> weights;
  KfacState state;
};

/// One rank with all batches: a loss that is their mean over all samples.
Ended joined(const std::vector<RandomStep>& steps, const KfacOptions& options, bool alike) {
  Program<BranchNet> program(nullptr, {.options = options});
  for (const RandomStep& step : steps) {
    program.optimizer.zero_grad();
    program.net->freeze(step.frozen);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    const std::size_t batches = alike ? 1 : step.ranks.size();
    const auto samples = static_cast<double>(alike ? step.ranks.front().samples() : step.samples());
    for (std::size_t r = 0; r < batches; ++r)
      if (const RankBatch& batch = step.ranks[r]; batch.samples() > 0)
        loss = loss +
               loss_of_batch(program.net, batch) * (static_cast<double>(batch.samples()) / samples);
    program.pre->set_loss_terms(samples);
    loss.backward();
    EXPECT_FALSE(program.update().skipped);
  }
  return {program.weights(), program.pre->save()};
}

Ended on_ranks(Communicator& c, const std::string& strategy, const std::vector<RandomStep>& steps,
               const KfacOptions& options) {
  Program<BranchNet> program(&c, {.strategy = strategy, .options = options});
  for (const RandomStep& step : steps) {
    const RankBatch& mine = step.ranks[static_cast<std::size_t>(c.rank())];
    program.optimizer.zero_grad();
    program.net->freeze(step.frozen);
    program.parallel->set_batch(mine.samples());
    if (mine.samples() > 0) loss_of_batch(program.net, mine).backward();
    program.parallel->finish();
    EXPECT_FALSE(program.update().skipped);
  }
  return {program.weights(), program.parallel->curvature_state()};
}

/// Averages and how often they were updated.
double difference_of(const KfacState& a, const KfacState& b) {
  std::vector<torch::Tensor> ours, theirs;
  for (std::size_t l = 0; l < a.layers.size(); ++l)
    for (const auto& [x, y] :
         {std::pair{&a.layers[l].a, &b.layers[l].a}, std::pair{&a.layers[l].g, &b.layers[l].g}}) {
      EXPECT_EQ(x->updates, y->updates) << a.layers[l].name;
      EXPECT_EQ(x->average.defined(), y->average.defined()) << a.layers[l].name;
      if (!x->average.defined() || !y->average.defined()) continue;
      ours.push_back(x->average), theirs.push_back(y->average);
    }
  return largest_difference(ours, theirs);
}

class CurvatureUses : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureUses, EveryStrategyTakesTheStepsOfOneRankWithTheJoinedBatch) {
  const int ranks = GetParam();
  const std::string hybrid = ranks == 3 ? "hybrid, fraction=0.34" : "hybrid, fraction=0.5";
  struct Seeded {
    std::uint64_t seed;
    int factors, inverses;
  };
  for (const auto& [seed, factors, inverses] : {Seeded{1, 1, 1}, Seeded{2, 1, 2}, Seeded{3, 2, 4}})
    for (const std::string& sharing : {std::string("d"), std::string("mpd"), std::string("mem"),
                                       hybrid, std::string("spd"), std::string("dp")}) {
      const bool alike = sharing == "dp";  // each factor sees the samples of one rank alone
      const KfacOptions options = uses_options(factors, inverses);
      const std::vector<RandomStep> steps = random_steps(seed, ranks, alike);
      const Ended expected = joined(steps, options, alike);
      const std::string strategy =
          fmt::format("ddp+kfac({}, factors={}, inverses={})", sharing, factors, inverses);
      expect_weights(fmt::format("{}, random uses {}", strategy, seed), ranks, expected.weights,
                     [&](Communicator& c) {
                       const Ended ended = on_ranks(c, strategy, steps, options);
                       EXPECT_LT(difference_of(ended.state, expected.state), 1e-9) << strategy;
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
          const auto inputs = here.inputs.chunk(kPasses), targets = here.targets.chunk(kPasses);
          for (int step = 0; step < kSteps; ++step) {
            program.optimizer.zero_grad();
            for (std::size_t k = 0; k < kPasses; ++k) {
              const auto pass = [&] {
                (loss_of(program.net, Data{inputs[k], targets[k]}) * (scale_of(step) / kPasses))
                    .backward();
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
  constexpr int kPasses = 4;
  const std::vector<RandomStep> steps = random_steps(6, kPasses, false);
  KfacOptions options = uses_options(2, 4);
  const Ended expected = joined(steps, options, false);
  const auto passes = [&](std::int64_t s) {  // those with samples
    const auto& batches = steps[static_cast<std::size_t>(s)].ranks;
    return static_cast<double>(std::count_if(batches.begin(), batches.end(),
                                             [](const RankBatch& b) { return b.samples() > 0; }));
  };
  options.accumulate = passes;
  Program<BranchNet> program(nullptr, {.options = options});
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const RandomStep& step = steps[s];
    program.optimizer.zero_grad();
    program.net->freeze(step.frozen);
    const auto samples = static_cast<double>(step.samples());
    for (const RankBatch& batch : step.ranks) {
      if (batch.samples() == 0) continue;
      const torch::Tensor loss = loss_of_batch(program.net, batch);
      program.pre->set_loss_terms(samples / passes(static_cast<std::int64_t>(s)));
      (loss * (static_cast<double>(batch.samples()) / samples)).backward();
    }
    EXPECT_FALSE(program.update().skipped);
  }
  EXPECT_LT(largest_difference(program.weights(), expected.weights), 1e-12);
}

/// A is the mean over the rows that were there, G the sum over the terms that used the layer
/// divided by all: the direction of a layer that half of the samples use is theirs.
TEST(CurvatureUses, OfOneRankOfTwoAreCountedByRowsAndTerms) {
  const KfacOptions options = uses_options(1, 1);
  const std::vector<RandomStep> drawn = random_steps(9, 2, false);
  RandomStep step{drawn[0].ranks, {}};
  for (RankBatch& batch : step.ranks) batch = drawn[0].ranks[0];
  step.ranks[0].uses = {1, 0};
  step.ranks[1].uses = {0, 0};
  BranchNet net;
  KFAC pre(*net, options);
  loss_of_batch(net, step.ranks[0]).backward();
  pre.step();
  const KfacState alone = pre.save();
  comm::run_ranks(2, [&](Communicator& c) {
    const KfacState state =
        on_ranks(c, "ddp+kfac(spd, factors=1, inverses=1)", {step}, options).state;
    for (std::size_t l = 0; l < state.layers.size(); ++l) {
      if (state.layers[l].name != "branch0") continue;
      EXPECT_LT(largest_difference({state.layers[l].a.average}, {alone.layers[l].a.average}),
                1e-12);
      EXPECT_LT(largest_difference({state.layers[l].g.average * 2}, {alone.layers[l].g.average}),
                1e-12);
    }
  });
}

// ---- Labels that do not count: K-FAC takes the steps that it takes without their positions.

/// A class for each word, which looks at no other: [...] -> [..., 5].
struct TaggerImpl : torch::nn::Module {
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(11, 6));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(6, 7));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(7, 5));
  TaggerImpl() {
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(hidden(torch::tanh(words(x)))));
  }
};
TORCH_MODULE(Tagger);

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
  const KfacOptions options = options_of(masks ? Over::batch_positions : Over::batch, fisher);
  Program<Tagger> program(nullptr, {.options = options});
  KFAC& pre = *program.pre;
  for (int step = 0; step < kSteps; ++step) {
    program.optimizer.zero_grad();
    const torch::Tensor logits =
        masks ? shown(pre, program.net, data, how) : program.net(data.inputs);
    if (fisher == Fisher::monte_carlo)
      exact_fisher(pre, masks ? logits.movedim(-1, 1) : logits, LossKind::softmax_cross_entropy);
    cross_entropy_of(logits, data.targets).backward();
    program.update();
  }
  return program.weights();
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
        Program<Tagger> program(
            &c, {.strategy = strategy, .options = options_of(Over::batch_positions)});
        for (int step = 0; step < kSteps; ++step) {
          program.optimizer.zero_grad();
          program.parallel->set_batch(labels);
          cross_entropy_of(shown(*program.pre, program.net, mine, how), mine.targets).backward();
          program.parallel->step(*program.pre, program.optimizer);
        }
        return program.weights();
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
