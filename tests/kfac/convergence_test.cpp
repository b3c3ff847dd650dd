// The autoencoder benchmark: golden values and gates.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "kfac/autoencoder_training.hpp"
#include "kfac/factor_oracle.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/preconditioner.hpp"

namespace linerate::torch_adapter {
namespace {

using namespace autoencoder;

constexpr double kGolden = 1e-8;  // relative

void expect_near(double ours, double golden, const std::string& what) {
  EXPECT_LE(std::abs(ours / golden - 1), kGolden) << what;
}

TEST(Autoencoder, StartsAtTheGoldenValues) {
  EXPECT_DOUBLE_EQ(random_unit(1, 0), 0.5665615751722809);
  EXPECT_DOUBLE_EQ(random_unit(1, 2), 0.9710027535867962);
  const at::Tensor data = images();
  expect_near(data.sum().item<double>(), 6884.671482656, "sum of all pixels");
  Net net;
  const at::Tensor start = loss(net.forward(data), data);
  expect_near(start.item<double>(), 44.725437946350, "loss");
  start.backward();
  double square = 0;
  for (const at::Tensor& p : net.parameters()) square += p.grad().square().sum().item<double>();
  expect_near(square, 50.038641150394, "squared gradient");
}

// G1
struct GoldenCurve {
  Fisher fisher;
  double q, nu;                               // of the first step
  std::vector<std::pair<int, double>> curve;  // the excess loss after so many steps
};

void expect_golden(const GoldenCurve& golden) {
  Clipped training(kfac_options(golden.fisher));
  int done = 0;
  for (const auto& [steps, excess] : golden.curve) {
    for (; done < steps; ++done) {
      training.step();
      if (done > 0) continue;
      expect_near(training.last().q, golden.q, "q");
      expect_near(training.last().nu, golden.nu, "nu");
    }
    expect_near(training.excess(), excess, "after " + std::to_string(steps));
  }
}

TEST(Golden, ClipWithTheEmpiricalFisher) {
  expect_golden({Fisher::empirical,
                 10.7379959374,
                 0.0965024595568,
                 {{1, 30.9616811996},
                  {2, 30.7696275204},
                  {5, 29.8138448451},
                  {10, 27.5590478131},
                  {20, 20.7020307866}}});
}

TEST(Golden, ClipWithMonteCarloLabels) {
  expect_golden({Fisher::monte_carlo,
                 32.3612088324,
                 0.0555888426,
                 {{1, 30.8858334801},
                  {2, 30.5538755300},
                  {5, 28.7349285674},
                  {10, 22.6965869770},
                  {20, 15.7289658041}}});
}

// G2
TEST(Gate, ClipReachesTwoInAQuarterOfAdamsSteps) {
  Clipped training(kfac_options(Fisher::monte_carlo));
  const int steps = training.steps_to(2, 350);
  ASSERT_GT(steps, 0) << "not in 350 steps";
  for (const double rate : {0.001, 0.003, 0.01, 0.03})
    EXPECT_EQ(FirstOrder::adam(rate)->steps_to(2, 4 * steps - 1), 0) << rate;
}

// G5: the gate has to notice the commonest mistake, a batch average that is not undone in G.
TEST(Gate, NoticesAMisscaledG) {
  KfacOptions wrong = kfac_options(Fisher::monte_carlo);
  wrong.loss_average = LossAverage::of_terms(std::pow(kImages, 3));  // G / N²
  Clipped training(wrong);
  EXPECT_EQ(training.steps_to(2, 350), 0);
}

/// DP-KFAC on `ranks` ranks in one process: layer l's factors come from shard l mod ranks alone.
class OwnedLayers : public Training {
 public:
  OwnedLayers(std::int64_t ranks, const KfacOptions& options)
      : ranks_(ranks),
        kfac_(net_, options),
        optimizer_(net_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {}

  void step() override {
    optimizer_.zero_grad();
    Preconditioner& parts = KfacInside::preconditioner(kfac_);
    std::vector<std::int32_t> factors, blocks;
    std::vector<at::Tensor> sums;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) take_shard(parts, rank, factors, sums);
    {
      const KFAC::Pause pause(kfac_);
      loss(net_.forward(data_), data_).backward();
    }
    const torch::NoGradGuard no_grad;
    for (std::int32_t b = 0; b < std::ssize(parts.blocks()); ++b) blocks.push_back(b);
    parts.begin();
    parts.fold(factors, sums);
    parts.invert(factors);
    parts.precondition(blocks);
    parts.keep();
    parts.write();
    optimizer_.step();
    ++done_;
  }

 private:
  void take_shard(Preconditioner& parts, std::int64_t rank, std::vector<std::int32_t>& factors,
                  std::vector<at::Tensor>& sums) {
    const std::int64_t begin = kImages * rank / ranks_, end = kImages * (rank + 1) / ranks_;
    const at::Tensor logits = net_.forward(data_.narrow(0, begin, end - begin));
    kfac_.sample_fisher(logits, LossKind::binary_cross_entropy, labels(logits, done_, begin));
    for (std::int32_t b = 0; b < std::ssize(parts.blocks()); ++b) {
      CurvatureBlock& block = *parts.blocks()[to_index(b)];
      if (b % ranks_ == rank)
        for (const FactorSide side : {FactorSide::a, FactorSide::g})
          factors.push_back(doc::factor_index(b, side)), sums.push_back(block.packed_batch(side));
      block.discard_batch();
    }
  }

  std::int64_t ranks_;
  KFAC kfac_;
  torch::optim::SGD optimizer_;
};

// G6
TEST(Gate, OwnedLayersReachTwo) {
  KfacOptions options = kfac_options(Fisher::monte_carlo);
  options.damping = 0.1;
  OwnedLayers training(4, options);
  EXPECT_GT(training.steps_to(2, 400), 0) << "not in 400 steps";
}

}  // namespace
}  // namespace linerate::torch_adapter
