#include "linerate/compare/accuracy.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"

namespace linerate::compare {
namespace {

using doc::Role;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(NoiseFloor, IsWhatNineInTenRoundsOfTheRepeatStayWithin) {
  // |repeat / fp32 - 1|: 0, 0.02, 0.02; the 0.9 quantile of three lies between the last two.
  EXPECT_THAT(noise_floor(sample_setup()), Optional(DoubleNear(0.02, 1e-12)));
  // Rounds are compared with their own: here both double in the second.
  doc::Setup drift = sample_setup();
  drift.timed[0].round_step_s = {1, 2, 1};
  drift.timed[2].round_step_s = {1, 2, 1};
  EXPECT_EQ(noise_floor(drift), 0.0);
}

TEST(NoiseFloor, IsUnknownWithoutARepeatAndThenNothingGains) {
  doc::Setup s = sample_setup();
  s.timed.erase(s.timed.begin() + 2);
  EXPECT_FALSE(noise_floor(s));
  EXPECT_EQ(count_gains({{s}}).over_fp32, 0);
}

TEST(Compare, TakesTheMedianOfPairedRounds) {
  // 0.9, 0.9, 2 of 1: the median is 0.9, whatever the third round suffered from.
  const std::vector<Compared> all = compare(sample_setup());
  ASSERT_EQ(all.size(), 4u);
  EXPECT_DOUBLE_EQ(*all[3].to_fp32, 0.9);
  EXPECT_DOUBLE_EQ(*all[3].to_sixteen_bit, 0.9 / 0.8);
  EXPECT_DOUBLE_EQ(all[3].coding_share, 0.27 / 0.9);
  EXPECT_DOUBLE_EQ(all[3].hidden_share, 0.75);
}

TEST(Gains, AreCountedBeyondTheNoiseFloorAgainstEachBaseline) {
  // topk: 0.9 of fp32 gains, 1.125 of 16-bit does not.
  doc::Evaluation evaluation{{sample_setup(), sample_setup(), sample_setup()}};
  evaluation.setups[1].timed[3].round_step_s = {0.985, 0.985, 0.985};  // within the 2 %
  evaluation.setups[2].timed[3].round_step_s = {0.7, 0.7, 0.7};        // 0.875 of 16-bit
  const Gains gains = count_gains(evaluation);
  EXPECT_EQ(gains.all, 3);  // baselines and repeats are no candidates
  EXPECT_EQ(gains.over_fp32, 2);
  EXPECT_EQ(gains.over_both, 1);
  EXPECT_EQ(sentence_of(gains),
            "2 of 3 setups gain over tuned fp32, 1 of 3 over the better of fp32 and the 16-bit "
            "exchange.");
}

TEST(Gains, NeedTheFasterOfTheTwoBaselines) {
  doc::Setup s = sample_setup();
  s.timed[1].round_step_s = {1.5, 1.5, 1.5};  // 16 bits are slower than fp32
  s.timed[3].round_step_s = {1.2, 1.2, 1.2};  // faster than 16 bits alone
  EXPECT_EQ(count_gains({{s}}).over_both, 0);
  s.timed[3].round_step_s = {0.9, 0.9, 0.9};
  EXPECT_EQ(count_gains({{s}}).over_both, 1);
}

TEST(Fastest, IsTheFirstOfTheLeastMedians) {
  EXPECT_EQ(fastest({timed("a", Role::fp32, {3, 3, 1}), timed("b", Role::fp32, {2, 2, 9}),
                     timed("c", Role::fp32, {2, 2, 2})}),
            1u);
}

TEST(BucketLadder, HoldsSizesThatCutTheGradients) {
  EXPECT_THAT(bucket_ladder(247'000), IsEmpty());
  EXPECT_THAT(bucket_ladder(1 << 20), IsEmpty());  // one bucket all the same
  EXPECT_THAT(bucket_ladder((1 << 20) + 1), ElementsAre("1MiB"));
  EXPECT_THAT(bucket_ladder(45'000'000), ElementsAre("1MiB", "5MiB", "25MiB"));
  EXPECT_THAT(bucket_ladder(528'000'000), ElementsAre("1MiB", "5MiB", "25MiB", "100MiB"));
}

}  // namespace
}  // namespace linerate::compare
