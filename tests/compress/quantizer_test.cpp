// What is particular to codecs of signs, grids and powers.
#include <gmock/gmock.h>

#include <cmath>

#include "inputs.hpp"
#include "linerate/compress/cast.hpp"
#include "linerate/compress/registry.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

/// Exact for every number of bits; the 1e-7 in a denominator of other implementations is not.
TEST(Quantizers, MaxMinSendsConstantBucketsExactly) {
  for (const char* strategy : {"maxmin(bits=1)", "maxmin(bits=2)", "maxmin(bits=4)", "maxmin"})
    for (const float value : {0.3f, -1e-30f, 1e-44f, 3e38f}) {
      const std::vector<float> v(1009, value);
      RankGroup one(*made(strategy), {1009, 1}, 1, false);
      EXPECT_EQ(one.step({v}, 0), v) << strategy << " " << value;
    }
}

/// Of 2^16 numbers every bit is set in half, to 5 standard errors; two keys share no shifted run.
TEST(RoundingBits, AreEvenAndOfTheirKey) {
  constexpr std::size_t kCount = 1 << 16;
  for (int bit = 0; bit < 32; ++bit) {
    int set = 0;
    for (std::size_t i = 0; i < kCount; ++i) set += rounding_bits(5, i) >> bit & 1;
    EXPECT_NEAR(set, kCount / 2.0, 5 * std::sqrt(kCount / 4.0)) << bit;
  }
  for (std::size_t shift = 0; shift < 64; ++shift) {
    int equal = 0;
    for (std::size_t i = 0; i < 1000; ++i)
      equal += rounding_bits(5, i + shift) >> 24 == rounding_bits(6, i) >> 24;
    EXPECT_LT(equal, 30) << shift;  // 1000 / 256 = 4 by chance
  }
}

/// Before freeze_step the mean is the gradient's, summed as it is; the momentum goes on behind it.
TEST(OneBitAdam, IsDenseBeforeItFreezes) {
  const auto compressor = made("onebit-adam(beta=0.5,freeze_step=2)");
  RankGroup group(*compressor, {100, 1}, 2, true);
  for (std::uint64_t step = 0; step < 3; ++step) {
    group.follow_phases(step);
    const std::vector<float> mean =
        group.step({std::vector<float>(100, 1.0f), std::vector<float>(100, 3.0f)}, step);
    EXPECT_EQ(group.sent()[0][0].size(), step < 2 ? 400u : 20u);
    EXPECT_EQ(group.rounds()[0].combine, step < 2 ? Combine::sum : Combine::gather);
    // Mean gradient 2; momentum 1, then 1.5; of equal elements: 0.75 + 0.5 and 0.75 + 1.5,
    // mean 1.75.
    EXPECT_EQ(mean[0], step < 2 ? 2.0f : 1.75f);
  }
}

/// Signum votes on momentum: one step the other way does not turn the sign, many do.
TEST(SignSgd, WithMomentumSignsFollowTheMovingAverage) {
  RankGroup one(*made("signsgd(momentum=0.75)"), {64, 1}, 1, false);
  const std::vector<float> up(64, 1.0f), down(64, -2.0f);
  EXPECT_EQ(one.step({up}, 0)[5], 1);     // m = 0.25
  EXPECT_EQ(one.step({up}, 1)[5], 1);     // 0.1875 + 0.25
  EXPECT_EQ(one.step({up}, 2)[5], 1);     // 0.578
  EXPECT_EQ(one.step({down}, 3)[5], -1);  // 0.434 - 0.5
  RankGroup steadier(*made("signsgd(momentum=0.9)"), {64, 1}, 1, false);
  for (std::uint64_t step = 0; step < 4; ++step) steadier.step({up}, step);  // m = 0.344
  EXPECT_EQ(steadier.step({down}, 4)[5], 1);                                 // 0.310 - 0.2
  EXPECT_EQ(made("signsgd")->momentum(), Momentum::optimizers);
  EXPECT_EQ(made("signsgd(momentum=0.9)")->momentum(), Momentum::own);
}

/// A vote, ternary codes and coarse norms are no contraction: error feedback would not converge.
TEST(Quantizers, OnlyContractionsMayKeepAResidual) {
  EXPECT_EQ(made("qsgd")->residual(), Residual::optional);
  EXPECT_EQ(made("qsgd(bits=2)")->residual(), Residual::none);
  EXPECT_EQ(made("maxmin(bits=1)")->residual(), Residual::none);
  EXPECT_EQ(made("maxmin(bits=2)")->residual(), Residual::optional);
  EXPECT_EQ(made("terngrad")->residual(), Residual::none);
}

TEST(AllFinite, FindsOneAnywhere) {
  for (const std::size_t n : {1u, 3u, 16u, 63u, 64u, 65u, 257u})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()})
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<float> v(n, -std::numeric_limits<float>::max());
        EXPECT_TRUE(all_finite(v));
        v[at] = bad;
        EXPECT_FALSE(all_finite(v)) << bad << " at " << at << " of " << n;
      }
  EXPECT_TRUE(all_finite({}));
}

}  // namespace
}  // namespace linerate::compress
