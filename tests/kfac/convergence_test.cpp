// The autoencoder benchmark: golden values and gates.
#include <gmock/gmock.h>
#include <torch/utils.h>

#include "kfac/autoencoder_training.hpp"
#include "kfac/factor_oracle.hpp"

namespace linerate::torch_adapter {
namespace {

using namespace autoencoder;

constexpr double kGolden = 1e-8;  // relative

void expect_near(double ours, double golden, const std::string& what) {
  EXPECT_LE(std::abs(ours / golden - 1), kGolden) << what;
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
    Training training(kfac_options(golden.fisher));
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
  Training training(kfac_options(Fisher::monte_carlo));
  const int steps = training.steps_to(2, 350);
  ASSERT_GT(steps, 0) << "not in 350 steps";
  for (const double rate : {0.001, 0.003, 0.01, 0.03})
    EXPECT_EQ(Training(rate).steps_to(2, 4 * steps - 1), 0) << rate;
}

// G5: the gate has to notice the commonest mistake, a batch average that is not undone in G.
TEST(Gate, NoticesAMisscaledG) {
  KfacOptions wrong = kfac_options(Fisher::monte_carlo);
  wrong.loss_average = LossAverage::of_terms(std::pow(kImages, 3));  // G / N²
  Training training(wrong);
  EXPECT_EQ(training.steps_to(2, 350), 0);
}

}  // namespace
}  // namespace linerate::torch_adapter
