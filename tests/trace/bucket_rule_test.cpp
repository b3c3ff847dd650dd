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
std::vector<std::string> ranks_of(const std::vector<long>& gradients,
                                  const std::vector<long>& buckets, long parameters) {
  std::vector<std::string> events;
  for (int s = 0; s < 3; ++s) {
    const double at = 4000.0 * s;
    double b = at + 115;  // while backward goes on
    events.push_back(step(s, at, 4000));
    events.push_back(op("aten::linear", at, 90));
    for (std::size_t g = 0; g < gradients.size(); ++g)
      events.push_back(gradient(gradients[g], at + 110 + 100 * static_cast<double>(g)));
    for (const long elements : buckets) {
      events.push_back(gloo_all_reduce(elements, b, b + 5, 50));
      b += 60;
    }
    if (parameters > 0) events.push_back(gloo_all_reduce(parameters, b, b + 5, 50, "int"));
    events.push_back(optimizer_step(at + 3000));
  }
  return {gloo_trace(0, 2, events), gloo_trace(1, 2, events)};
}
BucketPlan plan_of(const std::vector<long>& gradients, const std::vector<long>& buckets,
                   long parameters) {
  return check_buckets(job_of_ranks(ranks_of(gradients, buckets, parameters))).value();
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
  const Breakdown b = break_down(job_of_ranks(ranks_of({3, 2}, {5}, 2)));
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

TEST(BucketRule, WhatIsSentBehindTheOptimizerOrInTheForwardPassIsNoGradient) {
  // Every second step averages the 1500 parameters: behind the optimizer, or, as a gradient's
  // exchange would be, before it. Or each step sends 8 floats of a norm layer in its forward pass.
  const auto job = [](double called, int every = 2, bool norm = false) {
    std::vector<std::string> events;
    for (int s = 0; s < 6; ++s) {
      const double at = 1000.0 * s;
      for (const std::string& e :
           {step(s, at, 1000), op("aten::linear", at, 90), gradient(1000, at + 110),
            gradient(500, at + 210), optimizer_step(at + 300)})
        events.push_back(e);
      if (norm) events.push_back(gloo_all_reduce(8, at + 20, at + 25, 5));
      if (s % every == every - 1)
        events.push_back(gloo_all_reduce(1500, at + called, at + called + 5, 50));
    }
    return gloo_job(2, events);
  };
  const Job averaged = job(320);
  EXPECT_FALSE(check_buckets(averaged));
  EXPECT_EQ(import_job(averaged).workload.current, "");
  EXPECT_EQ(break_down(averaged).collective_bytes, 3 * 6000);
  EXPECT_EQ(break_down(averaged).gradient_bytes, std::nullopt);
  EXPECT_EQ(import_job(job(220)).workload.current, "ddp");
  EXPECT_EQ(import_job(job(303)).workload.current, "ddp");  // asked for by the optimizer's step
  const Breakdown with_norm = break_down(job(220, 1, true));
  EXPECT_EQ(with_norm.gradient_bytes, 6 * 6000);
  EXPECT_EQ(with_norm.collective_bytes, 6 * (6000 + 32));
}

}  // namespace
}  // namespace linerate::trace
