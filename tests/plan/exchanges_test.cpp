// DDP's bucket plans of torchvision's ResNet-50, as PyTorch makes them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "plan/planned.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> bucket_elements(const std::string& strategy, const doc::Workload& w) {
  const doc::Plan plan = support::planned(strategy, w, {});
  std::vector<std::int64_t> elements;
  for (const doc::Payload& b : plan.variants.back().buckets()) elements.push_back(b.elements);
  return elements;
}

const doc::Workload& resnet50() {
  static const doc::Workload w = support::workload_of(support::resnet50_parameters());
  return w;
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
  const doc::Plan plan = support::planned("ddp(bucket=8MiB)", w, {});
  ASSERT_EQ(plan.variants.size(), 2u);
  EXPECT_EQ(plan.variant_of_step(0).name, "first-step");
  EXPECT_EQ(plan.variant_of_step(7).name, "steady");
  EXPECT_THAT(plan.variants[0].members, ElementsAre(1, 2, 0));
  EXPECT_THAT(plan.variants[1].members, ElementsAre(0, 1, 2));
}

TEST(Ddp, BucketsHoldOneDtypeEach) {
  doc::Workload w = support::workload_at({1, 2, 3, 4}, {400, 400, 400, 400});
  w.gradients[1].dtype = w.gradients[3].dtype = DType::f16;
  const doc::Plan plan = support::planned("ddp", w, {});
  EXPECT_THAT(plan.variants.back().members, ElementsAre(0, 2, 1, 3));
  ASSERT_EQ(plan.variants.back().buckets().size(), 2u);
  EXPECT_EQ(plan.variants.back().buckets()[0].dtype, DType::f32);
  EXPECT_EQ(plan.variants.back().buckets()[1].dtype, DType::f16);
}

// Horovod's cycle: buckets leave at a tick of the clock.

constexpr double kCycle = 5e-3;

doc::Plan clocked(const doc::Workload& w, const std::string& threshold) {
  return support::planned("horovod(timer=clock, threshold=" + threshold + ")", w,
                          support::two_rank_cluster(1e-4, 1e-9));
}

// When the timers of a graph ring, since the start of backward: each begins when the one before
// it rang.
std::vector<double> ring_times(const doc::Plan& plan, const doc::TaskGraph& g) {
  std::vector<double> rings(g.tasks.size(), 0);
  std::int64_t before = -1;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    if (!is_timer(plan, g.tasks[i])) continue;
    EXPECT_EQ(g.predecessors(i).size(), 1u);
    if (before >= 0) {
      EXPECT_EQ(g.predecessors(i)[0], before);
    }
    rings[i] = g.tasks[i].seconds + (before < 0 ? 0 : rings[to_index(before)]);
    before = static_cast<std::int64_t>(i);
  }
  return rings;
}

// 161 gradients 1.1 ms apart, each a bucket of its own: one leaves at the first tick at or after
// its own time. Timers that queued would ring at the sum of all ticks before, up to seconds late.
TEST(Horovod, EachBucketLeavesAtItsOwnTick) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters(), 1.1e-3);
  const doc::Plan plan = clocked(w, "0MiB");
  const doc::TaskGraph& g = plan.variants.back();
  const std::vector<double> rings = ring_times(plan, g);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    if (!doc::is_communication(g.tasks[i].kind)) continue;
    double leaves = w.gradients[sent].ready_s;
    for (const std::uint32_t p : g.predecessors(i)) leaves = std::max(leaves, rings[p]);
    EXPECT_NEAR(leaves, std::ceil(w.gradients[sent].ready_s / kCycle) * kCycle, 1e-9) << sent;
    ++sent;
  }
  EXPECT_EQ(sent, w.gradients.size());
}

TEST(Horovod, TheFirstTimerIsSetWhenBackwardBegins) {
  const doc::Plan plan = clocked(support::workload_at({1e-3, 7e-3}, {8, 8}), "64MiB");
  const doc::TaskGraph& g = plan.variants.back();
  for (std::size_t i = 0; i < g.tasks.size(); ++i)
    if (is_timer(plan, g.tasks[i])) {
      EXPECT_EQ(g.tasks[g.predecessors(i)[0]].kind, doc::TaskKind::forward);
      EXPECT_DOUBLE_EQ(g.tasks[i].seconds, kCycle);
      return;
    }
  FAIL() << "no timer";
}

TEST(Horovod, TheFirstStepWaitsForNoTimer) {
  const doc::Plan plan = clocked(support::workload_at({1e-3, 7e-3}, {8, 8}), "64MiB");
  for (const doc::Task& t : plan.variants.front().tasks) EXPECT_FALSE(is_timer(plan, t));
}

}  // namespace
}  // namespace linerate::plan
