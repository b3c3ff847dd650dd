// DDP's bucket plans of torchvision's ResNet-50, as PyTorch makes them.
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> bucket_elements(const std::string& strategy, const doc::Workload& w) {
  const doc::Plan plan = make_plan(w, doc::Cluster{}, doc::parse_strategy(strategy), 2);
  std::vector<std::int64_t> elements;
  for (const doc::Payload& b : plan.variants.back().buckets()) elements.push_back(b.elements);
  return elements;
}

const doc::Workload& resnet50() {
  static const doc::Workload w = support::workload_of(support::resnet50_parameters());
  return w;
}

TEST(Ddp, Resnet50Has161TensorsOfTheSampleWorkload) {
  EXPECT_EQ(resnet50().gradients.size(), 161u);
  EXPECT_EQ(resnet50().gradient_bytes(), 4 * 25557032);
}

TEST(Ddp, SteadyStateBucketsAreThoseOfARealTwoRankTrace) {
  EXPECT_THAT(bucket_elements("ddp", resnet50()),
              ElementsAre(2049000, 7875584, 6563840, 6637568, 2431040));
}

TEST(Ddp, FirstLimitEqualToTheOthersMeansNoSmallBucket) {
  EXPECT_THAT(bucket_elements("ddp(first=25MiB)", resnet50()),
              ElementsAre(7564264, 6563840, 7091712, 4337216));
}

TEST(Ddp, PyTorchsOwnOptionIsBothLimitsInMiB) {
  EXPECT_EQ(bucket_elements("ddp(bucket_cap_mb=25)", resnet50()),
            bucket_elements("ddp(first=25MiB, bucket=25MiB)", resnet50()));
  EXPECT_EQ(bucket_elements("ddp(bucket_cap_mb=0.5)", resnet50()),
            bucket_elements("ddp(first=512KiB, bucket=512KiB)", resnet50()));
  for (const char* wrong :
       {"ddp(bucket_cap_mb=0)", "ddp(bucket_cap_mb=25MiB)", "ddp(bucket_cap_mb=5, first=1MiB)"})
    EXPECT_THROW(bucket_elements(wrong, resnet50()), UsageError) << wrong;
}

TEST(Ddp, SmallBucketLastPlansFromTheOtherEnd) {
  EXPECT_THAT(bucket_elements("ddp(small=last)", resnet50()),
              ElementsAre(3102696, 7875584, 7417344, 6755584, 405824));
}

TEST(Ddp, FirstStepGoesByReverseRegistrationWhateverTheReadyOrder) {
  // Ready order 0, 1, 2 while registration says 1, 2, 0 counted from the end.
  doc::Workload w = support::workload_at({1, 2, 3}, {4 << 20, 4 << 20, 4 << 20});
  w.gradients[0].registration = 0;
  w.gradients[1].registration = 2;
  w.gradients[2].registration = 1;
  const doc::Plan plan = make_plan(w, doc::Cluster{}, doc::parse_strategy("ddp(bucket=8MiB)"), 2);
  ASSERT_EQ(plan.variants.size(), 2u);
  EXPECT_EQ(plan.variant_of_step(0).name, "first-step");
  EXPECT_EQ(plan.variant_of_step(7).name, "steady");
  EXPECT_THAT(plan.variants[0].members, ElementsAre(1, 2, 0));
  EXPECT_THAT(plan.variants[1].members, ElementsAre(0, 1, 2));
}

TEST(Ddp, BucketsHoldOneDtypeEach) {
  doc::Workload w = support::workload_at({1, 2, 3, 4}, {400, 400, 400, 400});
  w.gradients[1].dtype = w.gradients[3].dtype = DType::f16;
  const doc::Plan plan = make_plan(w, doc::Cluster{}, doc::parse_strategy("ddp"), 2);
  EXPECT_THAT(plan.variants.back().members, ElementsAre(0, 2, 1, 3));
  ASSERT_EQ(plan.variants.back().buckets().size(), 2u);
  EXPECT_EQ(plan.variants.back().buckets()[0].dtype, DType::f32);
  EXPECT_EQ(plan.variants.back().buckets()[1].dtype, DType::f16);
}

}  // namespace
}  // namespace linerate::plan
