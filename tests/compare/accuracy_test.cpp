#include "linerate/compare/accuracy.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"

namespace linerate::compare {
namespace {

using doc::Role;
using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
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
  EXPECT_EQ(noise_sentence(s), "no A/A run, so the noise floor is not known and no gain counts");
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

// topk takes 0.9, 0.9 and 2 of fp32's round: its median is 0.9, whatever the third suffered from.
// Of its 0.9 s 0.27 are coding, and of 0.4 s of network 0.1 are exposed. The target is fp32's
// median less its spread, 0.89 - 0.02: fp32 reaches it after 40 and 30 steps, topk after 40 and
// never.
TEST(EvaluationText, SaysBaselinesNoisePropertiesAccuracyAndTheCount) {
  EXPECT_EQ(to_text({{sample_setup()}}),
            R"(lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host
  strategy                role         step       over rounds  / fp32  / 16-bit  gains  encode  network   decode  exposed     sent
  ddp                     fp32       1.00 s  1.00 s .. 1.00 s   1.000     1.250            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp(wire=fp16)          16-bit     800 ms  800 ms .. 800 ms   0.800     1.000            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp                     repeat     1.00 s  980 ms .. 1.02 s   1.000     1.250            0 s   400 ms      0 s   100 ms  1.00 MB
  ddp+topk(density=0.01)  candidate  900 ms  900 ms .. 2.00 s   0.900     1.125  fp32   200 ms   400 ms  70.0 ms   100 ms  1.00 MB
  noise floor (A/A): 2.0 %; a gain counts if it is larger

  candidate               summed  coding of step  network hidden  options
  ddp+topk(density=0.01)  no                30 %            75 %  1: density

  strategy                seeds         after equal steps          after equal time            steps to target / fp32  diverged
  ddp                         2  89.00 % (88.00 .. 90.00)  89.00 % (88.00 .. 90.00)                 1.00 [0.75, 1.33]         0
  ddp+topk(density=0.01)      2  78.75 % (70.00 .. 87.50)                         -  1.14 [1.00, 1.33], 1 of 2 missed         0
  target: test accuracy 87.00 % (fp32's last less its spread over seeds), tested every 10 steps

1 of 1 setups gain over tuned fp32, 0 of 1 over the better of fp32 and the 16-bit exchange.
)");
}

}  // namespace
}  // namespace linerate::compare
