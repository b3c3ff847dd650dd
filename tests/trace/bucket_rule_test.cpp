#include "linerate/explain/explanation.hpp"

#include <gmock/gmock.h>

#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr long kMiB = 1 << 18;  // elements of it

/// A job of two ranks whose backward passes make these gradients ready (elements) and exchange
/// these buckets, with a flag for each of `parameters` behind them.
Job job_with(const std::vector<long>& gradients, const std::vector<long>& buckets,
             long parameters) {
  const Events events = in_steps(3, 4000, [&](int, double at) {
    Events of_step = {op("aten::linear", at, 90), optimizer_step(at + 3000)};
    double b = at + 115;  // while backward goes on
    for (std::size_t g = 0; g < gradients.size(); ++g)
      of_step.push_back(gradient(gradients[g], at + 110 + 100 * static_cast<double>(g)));
    for (const long elements : buckets) {
      of_step.push_back(gloo_all_reduce(elements, b, b + 5, 50));
      b += 60;
    }
    if (parameters > 0) of_step.push_back(gloo_all_reduce(parameters, b, b + 5, 50, "int"));
    return of_step;
  });
  return gloo_job(2, events);
}
BucketPlan plan_of(const std::vector<long>& gradients, const std::vector<long>& buckets,
                   long parameters) {
  return check_buckets(job_with(gradients, buckets, parameters)).value();
}

TEST(BucketRule, FlagsOfEachParameterSayThatTheSmallBucketIsTheLastOne) {
  // As registered 1, 2 | 2, 2 MiB, cut from the front at 1 MiB and at the end.
  const std::vector<long> gradients = {2 * kMiB, 2 * kMiB, 2 * kMiB, kMiB};
  const BucketPlan unused = plan_of(gradients, {6 * kMiB, kMiB}, 4);
  EXPECT_EQ(unused.strategy, "ddp(small=last)");
  EXPECT_TRUE(unused.matches_rule);
  EXPECT_THAT(unused.bytes, ElementsAre(24 * kMiB, 4 * kMiB));
  EXPECT_THAT(unused.verdict, HasSubstr("find_unused_parameters"));
  // A cap, for all buckets alike: 1 + 2 and 2 + 2 MiB reach 3.
  EXPECT_EQ(plan_of(gradients, {4 * kMiB, 3 * kMiB}, 4).strategy,
            "ddp(bucket_cap_mb=3, small=last)");
  // The same buckets without flags are of limits in ready order, where such exist.
  EXPECT_EQ(plan_of(gradients, {6 * kMiB, kMiB}, 0).strategy, "ddp(bucket_cap_mb=5)");
}

TEST(BucketRule, FlagsAreNoGradients) {
  const Breakdown b = break_down(job_with({3, 2}, {5}, 2));
  EXPECT_EQ(b.collective_bytes, 3 * (20 + 8));
  EXPECT_EQ(b.gradient_bytes, 3 * 20);
}

TEST(BucketRule, ParametersWithoutAGradientAreCountedAndTheirPlaceIsTried) {
  // Two of six parameters, of half a MiB together, wherever they are registered.
  const std::vector<long> gradients = {2 * kMiB, 2 * kMiB, 2 * kMiB, kMiB};
  const BucketPlan plan = plan_of(gradients, {6 * kMiB + kMiB / 2, kMiB}, 6);
  EXPECT_EQ(plan.strategy, "ddp(small=last)");
  EXPECT_THAT(plan.verdict, HasSubstr("2 of 6 parameters got no gradient, and 524288 bytes"));
  // Buckets that no limit cuts: 3 + 3 MiB in one, then 1 alone.
  const BucketPlan none = plan_of({2 * kMiB, kMiB, 3 * kMiB, 3 * kMiB, kMiB},
                                  {2 * kMiB, kMiB, 6 * kMiB + kMiB / 2, kMiB}, 7);
  EXPECT_EQ(none.strategy, "");
  EXPECT_THAT(none.verdict, HasSubstr("its limits are not known"));
  EXPECT_THAT(none.verdict, HasSubstr("2 of 7 parameters"));
}

TEST(BucketRule, WhatIsSentBehindTheOptimizerIsNoGradient) {
  // Every second step averages the 1500 parameters: behind the optimizer, or, as a gradient's
  // exchange would be, before it.
  const auto job = [](double called) {
    return gloo_job(2, in_steps(6, 1000, [called](int s, double at) {
                      Events events = {op("aten::linear", at, 90), gradient(1000, at + 110),
                                       gradient(500, at + 210), optimizer_step(at + 300)};
                      if (s % 2 == 1)
                        events.push_back(gloo_all_reduce(1500, at + called, at + called + 5, 50));
                      return events;
                    }));
  };
  const Job averaged = job(320);
  EXPECT_FALSE(check_buckets(averaged));
  EXPECT_EQ(import_job(averaged).workload.current, "");
  EXPECT_EQ(break_down(averaged).collective_bytes, 3 * 6000);
  EXPECT_EQ(break_down(averaged).gradient_bytes, std::nullopt);
  EXPECT_EQ(import_job(job(220)).workload.current, "ddp");
  EXPECT_EQ(import_job(job(303)).workload.current, "ddp");  // asked for by the optimizer's step
}

TEST(BucketRule, WhatTheForwardPassSendsIsNoGradientEither) {
  // Statistics of a norm layer, 8 floats, in front of a bucket of 1000.
  const Breakdown b = break_down(gloo_job(
      2, in_steps(3, 1000, [](int, double at) {
        return Events{op("aten::batch_norm", at, 90), gloo_all_reduce(8, at + 20, at + 25, 5),
                      gradient(1000, at + 110), gloo_all_reduce(1000, at + 120, at + 125, 50),
                      optimizer_step(at + 300)};
      })));
  EXPECT_EQ(b.gradient_bytes, 3 * 4000);
  EXPECT_EQ(b.collective_bytes, 3 * 4032);
}

}  // namespace
}  // namespace linerate::trace
