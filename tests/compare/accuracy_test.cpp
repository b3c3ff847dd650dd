#include "linerate/compare/accuracy.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"

namespace linerate::compare {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Optional;

TEST(Target, IsFp32sLastAccuracyLessItsSpreadOverSeeds) {
  // 0.9 and 0.88: median 0.89, spread 0.02.
  EXPECT_THAT(target_of(sample_setup()), Optional(DoubleNear(0.87, 1e-12)));
  doc::Setup asked = sample_setup();
  asked.target_accuracy = 0.6;
  EXPECT_EQ(target_of(asked), 0.6);
  EXPECT_FALSE(target_of(doc::Setup{}));
}

TEST(StepsTo, AreThoseOfTheFirstTestThatReachesIt) {
  const doc::TrainedRun run = trained("ddp", doc::Role::fp32, 1, {0.5, 0.8, 0.7, 0.9});
  EXPECT_THAT(steps_to(run, 0.8), Optional(DoubleEq(20)));
  EXPECT_THAT(steps_to(run, 0.85), Optional(DoubleEq(40)));
  EXPECT_FALSE(steps_to(run, 0.95));
}

TEST(Learned, HasTheRatioOfMediansAndCountsWhatMissed) {
  // Target 0.87: fp32 after 40 and 30 steps, topk after 40 and never.
  const std::vector<Learned> all = learned(sample_setup());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0].steps_to_target, ElementsAre(40, 30));
  EXPECT_THAT(all[1].steps_to_target, ElementsAre(40));
  EXPECT_EQ(all[1].missed, 1);
  EXPECT_EQ(all[1].runs, 2);
  EXPECT_DOUBLE_EQ(all[1].steps_ratio->value, 40.0 / 35);
  EXPECT_THAT(all[1].steps_ratio->low, Optional(DoubleEq(1)));           // 40 / 40
  EXPECT_THAT(all[1].steps_ratio->high, Optional(DoubleEq(40.0 / 30)));  // 40 / 30
  EXPECT_DOUBLE_EQ(all[1].after_steps->value, (0.875 + 0.7) / 2);
}

TEST(Learned, ADivergedRunHasNoAccuracyAndMissesTheTarget) {
  doc::Setup s = sample_setup();
  s.trained[3].diverged = "the loss of step 7 is nan";
  const std::vector<Learned> all = learned(s);
  EXPECT_EQ(all[1].diverged, 1);
  EXPECT_EQ(all[1].missed, 1);
  EXPECT_EQ(all[1].after_steps->value, 0.875);
}

TEST(EqualTime, GivesStepsInProportionOutsideTheNoise) {
  const doc::Setup s = sample_setup();
  EXPECT_EQ(steps_in_equal_time(s, "ddp+topk(density=0.01)", 90), 100);  // 90 / 0.9
  EXPECT_EQ(steps_in_equal_time(s, "ddp", 90), 90);
  doc::Setup close = s;
  close.timed[3].round_step_s = {0.985, 0.985, 0.985};  // the floor is 2 %
  EXPECT_EQ(steps_in_equal_time(close, "ddp+topk(density=0.01)", 90), 90);
  EXPECT_FALSE(steps_in_equal_time(s, "never timed", 90));
}

TEST(EqualTime, AccuracyIsThatOfTheRunsWithFp32sTime) {
  doc::Setup s = sample_setup();
  EXPECT_FALSE(learned(s)[1].after_time);  // 40 steps would be 44 in fp32's time: nobody ran them
  doc::TrainedRun longer =
      trained("ddp+topk(density=0.01)", doc::Role::candidate, 1, {0.4, 0.5, 0.6, 0.7, 0.8});
  longer.budget = doc::Budget::time;
  s.trained.push_back(longer);
  const Learned topk = learned(s)[1];
  EXPECT_EQ(topk.after_time->value, 0.8);
  EXPECT_EQ(topk.runs, 2);  // of equal steps
  EXPECT_THAT(topk.steps_to_target, ElementsAre(40));
  EXPECT_EQ(learned(s)[0].after_time->value, learned(s)[0].after_steps->value);
}

TEST(StepsRatio, OfOneRunEachHasNoInterval) {
  const double a[] = {40}, b[] = {30, 20};
  EXPECT_FALSE(steps_ratio(a, a).has_interval());
  const doc::Bounded ratio = steps_ratio(a, b);
  EXPECT_DOUBLE_EQ(ratio.value, 40.0 / 25);
  EXPECT_DOUBLE_EQ(*ratio.low, 40.0 / 30);
  EXPECT_DOUBLE_EQ(*ratio.high, 2);
}

}  // namespace
}  // namespace linerate::compare
