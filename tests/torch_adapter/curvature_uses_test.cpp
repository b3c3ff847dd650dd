// Layers that some ranks use, or none, more than once, frozen and thawed, by sequences of unequal
// length in unequal batches: ranks take the steps of one rank with the joined batch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "linerate/core/random.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;

constexpr std::size_t kBranches = 2;
constexpr int kUseSteps = 8;

/// Words, a norm layer and a trunk for every position; branches that a pass may leave out or
/// repeat; a head for the mean over positions.
struct BranchNetImpl : torch::nn::Module {
  BranchNetImpl() {
    words = register_module("words", torch::nn::Embedding(11, 6));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    trunk = register_module("trunk", torch::nn::Linear(6, 7));
    for (std::size_t b = 0; b < kBranches; ++b)
      branches[b] = register_module("branch" + std::to_string(b), torch::nn::Linear(7, 7));
    head = register_module("head", torch::nn::Linear(7, 4));
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
  torch::nn::Embedding words{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear trunk{nullptr}, head{nullptr};
  std::array<torch::nn::Linear, kBranches> branches{nullptr, nullptr};
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
  BranchNet net;
  KFAC pre(*net, options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (const RandomStep& step : steps) {
    optimizer.zero_grad();
    net->freeze(step.frozen);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    const std::size_t batches = alike ? 1 : step.ranks.size();
    const auto samples = static_cast<double>(alike ? step.ranks.front().samples() : step.samples());
    for (std::size_t r = 0; r < batches; ++r)
      if (const RankBatch& batch = step.ranks[r]; batch.samples() > 0)
        loss = loss + loss_of_batch(net, batch) * (static_cast<double>(batch.samples()) / samples);
    pre.set_loss_terms(samples);
    loss.backward();
    EXPECT_FALSE(pre.step().skipped);
    optimizer.step();
  }
  return {weights_of(*net), pre.save()};
}

Ended on_ranks(Communicator& c, const std::string& strategy, const std::vector<RandomStep>& steps,
               const KfacOptions& options) {
  BranchNet net;
  KFAC pre(*net, options);
  DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (const RandomStep& step : steps) {
    const RankBatch& mine = step.ranks[static_cast<std::size_t>(c.rank())];
    optimizer.zero_grad();
    net->freeze(step.frozen);
    parallel.set_batch(mine.samples());
    if (mine.samples() > 0) loss_of_batch(net, mine).backward();
    parallel.finish();
    EXPECT_FALSE(pre.step().skipped);
    optimizer.step();
  }
  parallel.require_same_weights("at the end");
  return {weights_of(*net), parallel.curvature_state()};
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
  double averages = 0;
  std::mutex mutex;
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
                       const double difference = difference_of(ended.state, expected.state);
                       const std::lock_guard lock(mutex);
                       averages = std::max(averages, difference);
                       return ended.weights;
                     });
    }
  EXPECT_LT(averages, 1e-9);
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
  BranchNet net;
  KFAC pre(*net, options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const RandomStep& step = steps[s];
    optimizer.zero_grad();
    net->freeze(step.frozen);
    const auto samples = static_cast<double>(step.samples());
    for (const RankBatch& batch : step.ranks) {
      if (batch.samples() == 0) continue;
      const torch::Tensor loss = loss_of_batch(net, batch);
      pre.set_loss_terms(samples / passes(static_cast<std::int64_t>(s)));
      (loss * (static_cast<double>(batch.samples()) / samples)).backward();
    }
    EXPECT_FALSE(pre.step().skipped);
    optimizer.step();
  }
  EXPECT_LT(largest_difference(weights_of(*net), expected.weights), 1e-12);
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

TEST(CurvatureUses, KeepTheAveragesOfALayerThatNobodyUses) {
  const KfacOptions options = uses_options(1, 1);
  for (const int ranks : {1, 2, 3}) {
    std::vector<RandomStep> steps = random_steps(5, ranks, false);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      steps[s].frozen = {s > 0 && s % 2 == 0, false};
      for (RankBatch& batch : steps[s].ranks) batch.uses = {s == 0 ? 1 : 0, 1};
    }
    for (RankBatch& batch : steps[2].ranks) batch.uses = {1, 1};  // frozen
    comm::run_ranks(ranks, [&](Communicator& c) {
      const KfacState first =
          on_ranks(c, "ddp+kfac(spd, factors=1, inverses=1)", {steps[0]}, options).state;
      const KfacState last =
          on_ranks(c, "ddp+kfac(spd, factors=1, inverses=1)", steps, options).state;
      for (std::size_t l = 0; l < last.layers.size(); ++l) {
        if (last.layers[l].name != "branch0") continue;
        EXPECT_EQ(last.layers[l].a.updates, 1);
        EXPECT_TRUE(torch::equal(last.layers[l].a.average, first.layers[l].a.average));
        EXPECT_TRUE(torch::equal(last.layers[l].g.average, first.layers[l].g.average));
      }
    });
  }
}

}  // namespace
}  // namespace linerate::torch_adapter
