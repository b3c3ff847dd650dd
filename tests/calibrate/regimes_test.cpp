#include "linerate/calibrate/curve.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "linerate/core/random.hpp"

namespace linerate::calibrate {
namespace {

using Samples = std::vector<doc::CostSample>;

Samples powers_of_two(int from, int to, double (*seconds)(double)) {
  Samples samples;
  for (int k = from; k <= to; ++k)
    samples.push_back({static_cast<double>(1ll << k), seconds(static_cast<double>(1ll << k))});
  return samples;
}

TEST(RelativeLine, RecoversAlphaAndBetaOverSixDecades) {
  const Samples samples = powers_of_two(10, 30, [](double s) { return 30e-6 + s / 10e9; });
  const Line line = RelativeLines(samples).fit(0, samples.size());
  EXPECT_NEAR(line.alpha_s, 30e-6, 1e-12);
  EXPECT_NEAR(line.beta_s_per_byte, 1e-10, 1e-18);
}

TEST(RelativeLine, GivesEverySizeTheSameWeight) {
  // 1 B in 1 s, 1 B in 3 s at nearly the same size: min (a/1 - 1)^2 + (a/3 - 1)^2 -> a (1 + 1/9) =
  // 4/3 -> a = 1.2 s. Plain least squares says 2 s.
  const Samples samples = {{1000, 1}, {1000.001, 3}, {1000.002, 1}, {1000.003, 3}};
  const RelativeLines lines(samples);
  EXPECT_NEAR(lines.fit(0, 4).at(1000), 1.2, 0.05);
}

TEST(RelativeLine, KeepsBothCoefficientsNonNegative) {
  const Samples falling = {{1000, 3}, {2000, 2}, {4000, 1}};
  EXPECT_EQ(RelativeLines(falling).fit(0, 3).beta_s_per_byte, 0);
  const Samples steep = {
      {1000, 1}, {2000, 3}, {4000, 9}};  // more than proportional: alpha would be negative
  EXPECT_EQ(RelativeLines(steep).fit(0, 3).alpha_s, 0);
}

TEST(Regimes, AStraightLineIsOneRegime) {
  const Samples samples = powers_of_two(10, 30, [](double s) { return 30e-6 + s / 10e9; });
  const Curve curve(samples);
  EXPECT_EQ(curve.runs.size(), 1u);
  EXPECT_TRUE(curve.switches.empty());
}

TEST(Regimes, BracketsAJumpOfTheTime) {
  // Above 16 MiB the library goes over to an algorithm that takes 0.6 of the time.
  const Samples samples = powers_of_two(
      20, 30, [](double s) { return (40e-6 + s / 8e9) * (s > 16 * 1048576.0 ? 0.6 : 1); });
  const Curve curve(samples);
  ASSERT_EQ(curve.switches.size(), 1u);
  EXPECT_EQ(samples[curve.switches[0].after].bytes, 16 * 1048576.0);
  EXPECT_EQ(samples[curve.switches[0].after + 1].bytes, 32 * 1048576.0);
}

TEST(Regimes, TimingNoiseIsNoSwitch) {
  Samples samples = powers_of_two(13, 33, [](double s) { return 60e-6 + s / 9e9; });
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds *= 0.98 + 0.04 * random_unit(7, i);
  EXPECT_TRUE(Curve(samples).switches.empty());
}

// Normal noise of relative deviation 0.1 by twelve uniform numbers.
double noisy(double seconds, std::uint64_t i) {
  double sum = -6;
  for (std::uint64_t k = 0; k < 12; ++k) sum += random_unit(11, 12 * i + k);
  return seconds * (1 + 0.1 * sum);
}

TEST(Noise, IsFoundUnderALine) {
  Samples samples = powers_of_two(3, 33, [](double s) { return 60e-6 + s / 9e9; });
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds = noisy(samples[i].seconds, i);
  // Thirty samples tell a deviation to about 1 / sqrt(30) times 1.5 for a median, twice that here.
  EXPECT_NEAR(noise_of(samples), 0.1, 0.06);
}

TEST(Noise, NeitherAJumpNorASteadyBendIsNoise) {
  const Samples jump = powers_of_two(
      20, 30, [](double s) { return (40e-6 + s / 8e9) * (s > 16 * 1048576.0 ? 0.6 : 1); });
  EXPECT_EQ(noise_of(jump), 0.02);
  const Samples bend =
      powers_of_two(20, 30, [](double s) { return 1e-6 * std::pow(s / 1048576.0, 0.7); });
  EXPECT_EQ(noise_of(bend), 0.02);
}

TEST(Regimes, ANoisyClusterHasNoMoreSwitchesThanAQuietOne) {
  Samples samples = powers_of_two(3, 33, [](double s) { return 60e-6 + s / 9e9; });
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds = noisy(samples[i].seconds, i);
  EXPECT_TRUE(Curve(samples).switches.empty());
}

}  // namespace
}  // namespace linerate::calibrate
