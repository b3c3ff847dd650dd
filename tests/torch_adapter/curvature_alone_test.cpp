// One rank that shares its K-FAC with nobody, by any strategy, takes the steps of a K-FAC alone bit
// for bit: weights, momentum, state and reports, over random options and interruptions.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <array>
#include <cmath>

#include "linerate/core/random.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr int kBatches = 14;

enum class Fate { counts, not_finite, infinite, thrown_away, skipped };

struct AloneBatch : BranchBatch {
  std::array<bool, 2> frozen{};
  Fate fate = Fate::counts;
  double rate = 0;
};

/// A random program: what the options say, and what happens to each batch.
struct AloneProgram {
  bool eigen, sampled, clips, subsamples, reduces, fails, falls;
  int factors, inverses;
  std::vector<AloneBatch> batches;

  explicit AloneProgram(std::uint64_t seed) {
    std::uint64_t drawn = 0;
    const auto one_of = [&](std::uint64_t n) {
      return static_cast<int>(random_below(seed, drawn++, n));
    };
    torch::manual_seed(static_cast<std::int64_t>(seed));
    eigen = one_of(2) == 0, sampled = one_of(3) == 0, clips = one_of(3) > 0;
    subsamples = one_of(3) == 0, reduces = !subsamples && one_of(3) == 0, falls = one_of(2) == 0;
    fails = !eigen && one_of(3) == 0;
    factors = 1 + one_of(3), inverses = factors * (1 + one_of(2));
    for (int k = 0; k < kBatches; ++k) {
      AloneBatch batch{random_batch(2 + one_of(4))};
      batch.words = torch::randint(11, {batch.words.size(0), 1 + one_of(4)});
      batch.uses = {one_of(3), one_of(3)};
      batch.frozen = {one_of(5) == 0, false};
      const bool is_last = k == kBatches - 1;
      batch.fate = is_last || one_of(3) > 0 ? Fate::counts : static_cast<Fate>(one_of(5));
      batch.rate = 0.01 * (1 + one_of(20));
      batches.push_back(batch);
    }
  }

  KfacOptions options() const {
    return {.loss_average = LossAverage{},
            .fisher = sampled ? Fisher::monte_carlo : Fisher::empirical,
            .method = eigen ? InverseMethod::eigen : InverseMethod::cholesky,
            .shared_positions = reduces ? SharedPositions::reduce : SharedPositions::expand,
            .factor_interval = factors,
            .inverse_interval = inverses,
            .damping =
                [fails = fails, falls = falls](std::int64_t step) {
                  return fails && step % 4 == 2 ? kNotANumber
                         : falls                ? 0.3 / static_cast<double>(1 + step)
                                                : 0.1;
                },
            .kl_clip = clips ? 1e-2 : 0.0,
            .conv_subsampling = subsamples ? 2 : 1};
  }
};

/// Exact but for the sign of a NaN.
std::string exactly(double x) { return std::isnan(x) ? "nan" : fmt::format("{:a}", x); }

std::string text_of(const KfacStep& s) {
  return fmt::format(
      "step {} factors {} inverses {} skipped {} q {} nu {} damping {} failures [{}] "
      "plain [{}]",
      s.step, s.factors, s.inverses, s.skipped, exactly(s.q), exactly(s.nu), exactly(s.damping),
      fmt::join(s.failures, "; "), fmt::join(s.plain, ", "));
}

struct AloneEnd {
  std::vector<std::string> reports;
  std::vector<torch::Tensor> weights, momenta;
  NamedTensors state;
};

/// `c`: absent for a K-FAC that nobody shares.
AloneEnd run(const AloneProgram& drawn, comm::Communicator* c, const std::string& strategy = "") {
  Program<BranchNet> program(
      c, {.strategy = strategy, .options = drawn.options(), .names_optimizer = true});
  AloneEnd end;
  for (const AloneBatch& batch : drawn.batches) {
    program.net->freeze(batch.frozen);
    program.set_rate(batch.rate);
    program.optimizer.zero_grad();
    const torch::Tensor output = program.net(batch);
    program.pre->loss_of(output);
    if (drawn.sampled)
      program.pre->sample_fisher(output, LossKind::squared_error,
                                 torch::sin(output.detach() * 100));
    const double factor = batch.fate == Fate::not_finite ? kNotANumber
                          : batch.fate == Fate::infinite ? HUGE_VAL
                                                         : 1;
    (loss_of_output(output, batch.targets) * factor).backward({}, /*retain_graph=*/true);
    if (batch.fate == Fate::skipped && c) program.parallel->skip_step();
    if (batch.fate == Fate::skipped || batch.fate == Fate::thrown_away) continue;
    if (c) program.parallel->finish();
    end.reports.push_back(text_of(program.update()));
  }
  end.weights = weights_of(*program.net);
  end.momenta = program.momenta();
  end.state = to_tensors(program.state());
  return end;
}

class CurvatureOfOneRank : public ::testing::TestWithParam<std::string> {};

TEST_P(CurvatureOfOneRank, IsThatOfAKfacAloneBitForBit) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const AloneProgram program(seed);
    const AloneEnd alone = run(program, nullptr);
    const std::string strategy =
        fmt::format("{}, factors={}, inverses={})", GetParam(), program.factors, program.inverses);
    comm::run_ranks(1, [&](comm::Communicator& c) {
      const AloneEnd shared = run(program, &c, strategy);
      const std::string place = fmt::format("seed {}, {}", seed, strategy);
      EXPECT_EQ(shared.reports, alone.reports) << place;
      EXPECT_EQ(largest_difference(shared.weights, alone.weights), 0) << place;
      EXPECT_EQ(shared.momenta.size(), alone.momenta.size()) << place;
      EXPECT_EQ(largest_difference(shared.momenta, alone.momenta), 0) << place;
      expect_same_tensors(shared.state, alone.state, place);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, CurvatureOfOneRank,
    ::testing::Values("ddp+kfac(d", "ddp+kfac(mpd", "bulk+kfac(mpd, fusion=none, broadcasts=fused",
                      "ddp(first=64B,bucket=512B)+kfac(mem", "ddp+kfac(hybrid, fraction=0.5",
                      "ddp+kfac(spd", "ddp+kfac(spd, fusion=greedy, placement=lbp2021, theta=10",
                      "bulk+kfac(spd, fusion=none, placement=round-robin", "ddp+kfac(dp"));

/// A step by the program's own calls: of a K-FAC alone, or with the ranks of `parallel`.
struct Manual : Program<> {
  Manual(comm::Communicator* c, bool names_optimizer, double kappa = 1e-2)
      : Program<>(c, {.strategy = c ? "kfac(d)" : "",
                      .options = {.loss_average = LossAverage{},
                                  .factor_interval = 1,
                                  .inverse_interval = 1,
                                  .kl_clip = kappa,
                                  .learning_rate = [this](std::int64_t) { return rate; }},
                      .names_optimizer = names_optimizer}) {}
  /// Up to the optimizer's.
  void precondition(double at) {
    rate = at;
    set_rate(at);
    static const Data data = Data::whole();
    backward(data);
    if (parallel) parallel->finish();
    pre->step();
  }

  double rate = 0;
};

/// For a K-FAC alone, then on one and two ranks.
template <typename Run>
void alone_and_on_ranks(Run&& run) {
  run(nullptr);
  for (const int ranks : {1, 2}) comm::run_ranks(ranks, [&](comm::Communicator& c) { run(&c); });
}

TEST(MomentumBound, HoldsWhereStepsAreCalledOneByOne) {
  alone_and_on_ranks([](comm::Communicator* c) {
    Manual program(c, /*names_optimizer=*/true);
    program.precondition(0.05);
    program.optimizer.step();
    const auto before = program.momenta();
    program.precondition(0.2);
    const auto after = program.momenta();
    for (std::size_t p = 0; p < before.size(); ++p)
      EXPECT_TRUE(torch::equal(after[p], before[p] * (0.05 / 0.2))) << p;
    program.optimizer.step();
    const auto kept = program.momenta();
    program.precondition(0.1);
    EXPECT_EQ(largest_difference(program.momenta(), kept), 0);
  });
}

TEST(MomentumBound, WarnsWhereNobodyNamesTheOptimizer) {
  const Warnings warnings;
  alone_and_on_ranks([](comm::Communicator* c) {
    for (const auto& [names, kappa] : {std::pair{false, 1e-2}, {true, 1e-2}, {false, 0.0}}) {
      Manual program(c, names, kappa);
      for (const double rate : {0.05, 0.2, 0.4, 0.1}) {
        program.precondition(rate);
        program.optimizer.step();
      }
    }
  });
  EXPECT_THAT(warnings.with("the clip does not hold"), ::testing::SizeIs(1 + 1 + 2));
}

}  // namespace
}  // namespace linerate::torch_adapter
