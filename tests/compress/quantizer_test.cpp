// Signs, grids and powers against their scalar twins, and what is particular to each.
#include <gmock/gmock.h>

#include <cmath>

#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "oracle_quantizer.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

/// What one rank's payload decodes to, of inputs of every kind around words, blocks and buckets.
using Check = std::function<void(const std::vector<float>& v, const std::vector<float>& sent)>;
void for_inputs(const std::string& strategy, const Check& check) {
  const auto compressor = made(strategy);
  for (const std::int64_t n : {33, 512, 1009, 5003})
    for (const EdgeInput& input : edge_inputs(static_cast<std::size_t>(n), 11)) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << n << " elements, " << input.name);
      const bool keeps = compressor->residual() == Residual::needed;
      RankGroup one(*compressor, {n, 1}, 1, keeps);
      check(input.values, one.step({input.values}, 0));
      if (testing::Test::HasFatalFailure()) return;
    }
}

double largest_of(const std::vector<float>& v) {
  double largest = 0;
  for (const float x : v) largest = std::max(largest, std::abs(static_cast<double>(x)));
  return largest;
}

/// Levels are means in f64, rounded once: half a unit of f32, and its denormals' unit.
TEST(Quantizers, SignCodecsEqualASecondImplementation) {
  const std::vector<std::pair<std::string, SignOracle (*)(const std::vector<float>&)>> twins = {
      {"efsignsgd", mean_magnitude_oracle},
      {"onebit", mean_of_class_oracle},
      {"onebit-adam(beta=0)", root_mean_square_oracle}};
  for (const auto& [strategy, oracle] : twins)
    for_inputs(strategy, [&](const std::vector<float>& v, const std::vector<float>& sent) {
      const SignOracle levels = oracle(v);
      for (std::size_t i = 0; i < v.size(); ++i) {
        const double level = v[i] < 0 ? levels.negative : levels.positive;
        ASSERT_NEAR(sent[i], level, std::abs(level) * 0x1.01p-24 + 0x1p-150) << i;
      }
    });
}

/// |v - sent|^2 = (1 - |v|_1^2 / (n |v|_2^2)) |v|^2.
TEST(Quantizers, EfSignContractsByItsFormula) {
  for_inputs("efsignsgd", [&](const std::vector<float>& v, const std::vector<float>& sent) {
    double one = 0, two = 0, error = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      one += std::abs(static_cast<double>(v[i]));
      two += static_cast<double>(v[i]) * v[i];
      error += (static_cast<double>(v[i]) - sent[i]) * (static_cast<double>(v[i]) - sent[i]);
    }
    if (two < 1e-60) return;  // the level is a denormal: rounded coarsely
    EXPECT_NEAR(error, two - one * one / static_cast<double>(v.size()), 1e-6 * two);
  });
}

TEST(Quantizers, MajorityVoteIsCountedAndTiesArePositive) {
  for (const int ranks : {1, 2, 3, 4, 7, 8, 9}) {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < ranks; ++r)
      gradients.push_back(edge_inputs(5003, static_cast<std::uint64_t>(r))[r % 2 ? 0 : 4].values);
    RankGroup group(*made("signsgd"), {5003, 1}, ranks, false);
    const std::vector<float> vote = group.step(gradients, 0);
    for (std::size_t i = 0; i < vote.size(); ++i) {
      int sum = 0;
      for (const auto& g : gradients) sum += g[i] < 0 ? -1 : 1;
      ASSERT_EQ(vote[i], sum < 0 ? -1.0f : 1.0f) << ranks << " ranks, element " << i;
    }
  }
}

/// Values of a grid. The unit on the wire is rounded up to f32, 2^-23 of it, so the last point
/// moves by as much of the range, at most twice the largest value; what is decoded is rounded by
/// 2^-24: 2^-21 of the largest covers both. Sums beyond f32 are cut: no twin.
void expect_on_grid(
    const std::string& strategy,
    const std::function<Neighbours(const std::vector<float>&, std::size_t, std::uint64_t)>& oracle,
    double norms = 1) {
  const std::uint64_t key = keys_of(0, 0).own;
  for_inputs(strategy, [&](const std::vector<float>& v, const std::vector<float>& sent) {
    const double largest = largest_of(v) * norms;
    if (largest > 1e38) return;
    const bool coarse = largest < 1e-36;  // units are denormals: of few bits
    for (std::size_t i = 0; i < v.size(); ++i) {
      const Neighbours twin = oracle(v, i, key);
      const double tolerance = 0x1p-21 * largest;
      if (coarse)
        ASSERT_LE(std::abs(sent[i]), largest * 1.5 + 0x1p-140);
      else
        ASSERT_TRUE(twin.allows(sent[i], tolerance))
            << i << ": " << v[i] << " sent as " << sent[i] << ", not " << twin.lower << " or "
            << twin.upper;
    }
  });
}

TEST(Quantizers, QsgdEqualsASecondImplementation) {
  for (const int bits : {2, 4, 8})
    expect_on_grid(
        "qsgd(bits=" + std::to_string(bits) + ")",
        [=](const std::vector<float>& v, std::size_t i, std::uint64_t key) {
          return qsgd_oracle(v, i, (1 << (bits - 1)) - 1, 128, key);
        },
        std::sqrt(128));
}

TEST(Quantizers, MaxMinEqualsASecondImplementation) {
  for (const int bits : {1, 2, 4, 8})
    for (const bool stochastic : {false, true})
      expect_on_grid("maxmin(bits=" + std::to_string(bits) +
                         ",rounding=" + (stochastic ? "stochastic)" : "nearest)"),
                     [=](const std::vector<float>& v, std::size_t i, std::uint64_t key) {
                       return maxmin_oracle(v, i, bits, stochastic, key);
                     });
}

/// Exact for every number of bits; the 1e-7 in a denominator of other implementations is not.
TEST(Quantizers, MaxMinSendsConstantBucketsExactly) {
  for (const char* strategy : {"maxmin(bits=1)", "maxmin(bits=2)", "maxmin(bits=4)", "maxmin"})
    for (const float value : {0.3f, -1e-30f, 1e-44f, 3e38f}) {
      const std::vector<float> v(1009, value);
      RankGroup one(*made(strategy), {1009, 1}, 1, false);
      EXPECT_EQ(one.step({v}, 0), v) << strategy << " " << value;
    }
}

TEST(Quantizers, TernGradEqualsASecondImplementation) {
  expect_on_grid("terngrad", [](const std::vector<float>& v, std::size_t i, std::uint64_t key) {
    // Equal elements have no deviation but that of rounding: no twin.
    const bool equal = std::all_of(v.begin(), v.end(), [&](float x) { return x == v[0]; });
    if (equal) return Neighbours{0, 0, false, true};
    return terngrad_oracle(v, i, 2.5, key);
  });
}

TEST(Quantizers, NaturalEqualsASecondImplementationExactly) {
  const std::uint64_t key = keys_of(0, 0).own;
  for (const bool is_short : {false, true})
    for_inputs(is_short ? "natural(bits=8)" : "natural",
               [&](const std::vector<float>& v, const std::vector<float>& sent) {
                 const double largest = largest_of(v);
                 const int top = largest < 0x1p-126 ? -126 : std::min(127, std::ilogb(largest) + 1);
                 const int least = is_short ? std::max(-126, top - 126) : -126;
                 for (std::size_t i = 0; i < v.size(); ++i)
                   ASSERT_TRUE(natural_oracle(v[i], least, key, i).allows(sent[i], 0))
                       << i << ": " << v[i] << " sent as " << sent[i];
               });
}

/// 2n for 16 bits; the others derived in the reference for n = 1 000 003.
TEST(Quantizers, PayloadsHaveTheGoldenSizes) {
  const std::vector<std::pair<std::string, std::int64_t>> golden = {
      {"fp16", 2000006},          {"bf16", 2000006},          {"signsgd", 125004},
      {"efsignsgd", 125008},      {"onebit", 125012},         {"onebit-adam", 125008},
      {"qsgd", 1031256},          {"qsgd(bits=4)", 531256},   {"maxmin", 1015636},
      {"maxmin(bits=4)", 515636}, {"maxmin(bits=2)", 265636}, {"maxmin(bits=1)", 140636},
      {"terngrad", 250008},       {"natural", 1125004},       {"natural(bits=8)", 1000008}};
  for (const auto& [strategy, bytes] : golden) {
    const Shape shape{1000003, 1};
    ASSERT_EQ(made(strategy)->rounds(shape).size(), 1u) << strategy;
    EXPECT_EQ(made(strategy)->rounds(shape)[0].bytes, bytes) << strategy;
    const bool keeps = made(strategy)->residual() == Residual::needed;
    RankGroup one(*made(strategy), shape, 1, keeps);
    one.step({noise(1000003, 1)}, 0);
    EXPECT_EQ(one.sent()[0][0].bytes().size(), static_cast<std::size_t>(bytes)) << strategy;
  }
}

/// What is decoded of 2000 keys, for each element, is v in the mean: within 6 standard errors, of
/// 400 elements; and the variance within its bound.
TEST(Quantizers, UnbiasedCodecsHaveTheMeanAndVarianceOfTheirFormulas) {
  constexpr std::size_t kElements = 400;
  constexpr int kDraws = 2000;
  std::vector<float> v = noise(kElements, 1);
  // None so small that it is sent by no draw at all, which would leave no error to measure.
  for (float& x : v) x = std::copysign(std::max(std::abs(x), 0.2f), x);
  const std::vector<std::pair<std::string, double>> bounds = {{"qsgd", 128.0 / (127 * 127)},
                                                              {"qsgd(bits=2)", std::sqrt(128.0)},
                                                              {"maxmin(rounding=stochastic)", 1},
                                                              {"terngrad(clip=0)", 100},
                                                              {"natural", 0.125},
                                                              {"natural(bits=8)", 0.125}};
  for (const auto& [strategy, bound] : bounds) {
    const auto compressor = made(strategy);
    EXPECT_TRUE(compressor->is_unbiased()) << strategy;
    std::vector<double> sum(kElements), squares(kElements);
    RankGroup one(*compressor, {kElements, 1}, 1, false);
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<float> sent = one.step({v}, draw);
      for (std::size_t i = 0; i < kElements; ++i) {
        sum[i] += sent[i];
        squares[i] += (static_cast<double>(sent[i]) - v[i]) * (static_cast<double>(sent[i]) - v[i]);
      }
    }
    double variance = 0, size = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double error = std::sqrt(squares[i]) / kDraws;  // of the mean of the draws
      ASSERT_NEAR(sum[i] / kDraws, v[i], 6 * error + 1e-6) << strategy << " " << i;
      variance += squares[i] / kDraws;
      size += static_cast<double>(v[i]) * v[i];
    }
    EXPECT_LE(variance, 1.05 * bound * size) << strategy;
  }
  for (const char* biased : {"maxmin", "terngrad", "signsgd", "efsignsgd", "onebit", "fp16"})
    EXPECT_FALSE(made(biased)->is_unbiased()) << biased;
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

/// m = beta m + (1 - beta) g on each rank; what is sent of it and of the residual replaces m.
TEST(OneBitAdam, ExchangesMomentum) {
  RankGroup group(*made("onebit-adam(beta=0.75)"), {100, 1}, 2, true);
  std::vector<float> momentum(100);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const std::vector<std::vector<float>> g = {noise(100, 2 * step), noise(100, 2 * step + 1)};
    std::vector<double> expected(100);
    for (int r = 0; r < 2; ++r) {
      std::vector<float> x(100);
      for (std::size_t i = 0; i < 100; ++i)
        x[i] =
            0.75f * momentum[i] + 0.25f * g[static_cast<std::size_t>(r)][i] + group.residual(r)[i];
      const SignOracle levels = root_mean_square_oracle(x);
      for (std::size_t i = 0; i < 100; ++i)
        expected[i] += (x[i] < 0 ? levels.negative : levels.positive) / 2;
    }
    momentum = group.step(g, step);
    for (std::size_t i = 0; i < 100; ++i) ASSERT_NEAR(momentum[i], expected[i], 1e-6) << step;
  }
}

/// Before freeze_step the mean is the gradient's, summed as it is; the momentum goes on behind it.
TEST(OneBitAdam, IsDenseBeforeItFreezes) {
  const auto compressor = made("onebit-adam(beta=0.5,freeze_step=2)");
  RankGroup group(*compressor, {100, 1}, 2, true);
  for (std::uint64_t step = 0; step < 3; ++step) {
    group.set_phase(compressor->phases().of_step(static_cast<std::int64_t>(step)));
    const std::vector<float> mean =
        group.step({std::vector<float>(100, 1.0f), std::vector<float>(100, 3.0f)}, step);
    EXPECT_EQ(group.sent()[0][0].bytes().size(), step < 2 ? 400u : 20u);
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

TEST(Quantizers, OptionsOutOfRangeAreRefused) {
  for (const char* wrong :
       {"qsgd(bits=3)", "qsgd(bits=1)", "qsgd(bucket=100)", "qsgd(bucket=16)", "maxmin(bits=16)",
        "maxmin(rounding=up)", "natural(bits=7)", "onebit(block=33)", "onebit(block=-32)",
        "terngrad(clip=-1)", "onebit-adam(beta=1)", "onebit-adam(freeze_step=-1)",
        "signsgd(momentum=1)", "fp16(bits=8)"})
    EXPECT_THROW(made(wrong), UsageError) << wrong;
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
