// The autoencoder benchmark: golden values and gates.
#include <gmock/gmock.h>
#include <torch/utils.h>

#include "kfac/autoencoder_training.hpp"
#include "kfac/factor_oracle.hpp"
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

TEST(Golden, ClipWithEachFisher) {
  for (const GoldenCurve& golden : {GoldenCurve{Fisher::empirical,
                                                10.7379959374,
                                                0.0965024595568,
                                                {{1, 30.9616811996},
                                                 {2, 30.7696275204},
                                                 {5, 29.8138448451},
                                                 {10, 27.5590478131},
                                                 {20, 20.7020307866}}},
                                    GoldenCurve{Fisher::monte_carlo,
                                                32.3612088324,
                                                0.0555888426,
                                                {{1, 30.8858334801},
                                                 {2, 30.5538755300},
                                                 {5, 28.7349285674},
                                                 {10, 22.6965869770},
                                                 {20, 15.7289658041}}}}) {
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

}  // namespace
}  // namespace linerate::torch_adapter
