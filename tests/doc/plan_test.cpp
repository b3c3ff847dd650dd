#include "linerate/doc/plan.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

Plan two_tasks() {
  Plan plan;
  plan.strategy = "bulk";
  plan.ranks = 2;
  plan.gradient_names = {"w"};
  TaskGraph g;
  g.name = "steady";
  g.members = {0};
  g.buckets = {{0, 1, DType::f32, 10}};
  const auto backward = g.add({.kind = TaskKind::backward,
                               .origin = Origin::observed,
                               .resource = Resource::compute,
                               .first = 0,
                               .last = 0,
                               .seconds = 0.5});
  g.add({.kind = TaskKind::all_reduce,
         .resource = Resource::network,
         .first = 0,
         .last = 0,
         .bytes = 40},
        backward);
  plan.variants = {g};
  return plan;
}

TEST(Plan, RoundTripsThroughJsonWithItsHash) {
  const Plan plan = two_tasks();
  const Plan back = plan_from_json(to_json(plan), "p.json");
  EXPECT_EQ(to_json(back), to_json(plan));
  EXPECT_EQ(back.hash(), plan.hash());
}

TEST(Plan, HashSeesWhatAnExecutorObeys) {
  const std::uint64_t hash = two_tasks().hash();
  Plan p = two_tasks();
  p.variants[0].tasks[1].bytes = 44;
  EXPECT_NE(p.hash(), hash);
  p = two_tasks();
  p.variants[0].preds.clear();
  p.variants[0].pred_begin = {0, 0, 0};
  EXPECT_NE(p.hash(), hash);
  p = two_tasks();
  p.cycle = {0, 0};
  EXPECT_NE(p.hash(), hash);
}

TEST(Plan, HashIgnoresPredictedSeconds) {
  Plan p = two_tasks();
  p.variants[0].tasks[0].seconds = 0.7;
  EXPECT_EQ(p.hash(), two_tasks().hash());
}

TEST(Plan, ScheduleRunsTheWarmUpOnceAndTheCycleForEver) {
  Plan p = two_tasks();
  p.variants.push_back(p.variants[0]);
  p.variants[1].name = "update";
  p.warm_up = {1};
  p.cycle = {0, 0, 1};
  std::string order;
  for (int step = 0; step < 7; ++step) order += p.variant_of_step(step).name[0];
  EXPECT_EQ(order, "ussussu");  // update | steady steady update | steady steady update
}

TEST(Plan, ATaskMayNotWaitForALaterOne) {
  Plan p = two_tasks();
  p.variants[0].preds[0] = 1;
  EXPECT_THROW(validate(p), InternalError);
  EXPECT_THROW(plan_from_json(to_json(p), "p.json"), InputError);
}

}  // namespace
}  // namespace linerate::doc
