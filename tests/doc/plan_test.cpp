#include "linerate/doc/plan.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "small_documents.hpp"

namespace linerate::doc {
namespace {

// That every value reads back is in fields_test.cpp.
TEST(Plan, ReadsBackWithItsHashAndWhatAnExecutorAsks) {
  const Plan plan = small_plan();
  const Plan back = plan_from_json(to_json(plan), "p.json");
  EXPECT_EQ(to_json(back), to_json(plan));
  EXPECT_EQ(back.hash(), plan.hash());
  const TaskGraph& g = back.variants.front();
  EXPECT_EQ(back.operation_name(g.tasks[1]), "sum");
  EXPECT_EQ(back.group_of(g.tasks[1]).name, "node");
  EXPECT_EQ(g.payloads[0].bytes(), 48);
  EXPECT_EQ(g.buckets().size(), 1u);
  EXPECT_TRUE(is_timer(back, g.tasks[3]));
}

TEST(Plan, HashSeesWhatAnExecutorObeys) {
  const std::uint64_t hash = small_plan().hash();
  const auto changed = [hash](auto change) {
    Plan p = small_plan();
    change(p, p.variants[0]);
    return p.hash() != hash;
  };
  EXPECT_FALSE(changed([](Plan&, TaskGraph&) {}));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[1].bytes = 28; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[1].operation = 2; }));
  EXPECT_TRUE(changed([](Plan& p, TaskGraph&) { p.operations[1].options[0].second = "0.25"; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[1].group = kWhole; }));
  EXPECT_TRUE(changed([](Plan& p, TaskGraph&) { p.groups[1].parts = {{0, 2}, {1, 3}}; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[2].root = 0; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[1].bound = false; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[1].wire = DType::bf16; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.payloads[0].padded = 16; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.payloads[2].content = Content::samples; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.tasks[3].seconds = 6e-3; }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.next_step.clear(); }));
  EXPECT_TRUE(changed([](Plan&, TaskGraph& g) { g.preds[1] = 1; }));
  EXPECT_TRUE(changed([](Plan& p, TaskGraph&) { p.cycle = {0, 0}; }));
  EXPECT_TRUE(changed([](Plan& p, TaskGraph&) { p.blocks.resize(1); }));
  // Of predicted seconds it sees nothing.
  EXPECT_FALSE(changed([](Plan&, TaskGraph& g) { g.tasks[0].seconds = 0.7; }));
}

TEST(Plan, BlocksOfAReduceScatterMustBeWhole) {
  Plan p = small_plan();
  p.variants[0].tasks[1].kind = TaskKind::reduce_scatter;
  p.variants[0].tasks[1].bound = false;
  EXPECT_NO_THROW(validate(p));  // 12 elements for two ranks
  p.variants[0].payloads[1].padded = 13;
  EXPECT_THROW(validate(p), InternalError);
}

TEST(Plan, ARootMustBeInEveryPart) {
  Plan p = small_plan();
  p.variants[0].tasks[2].root = 2;  // of parts of two
  EXPECT_THROW(validate(p), InternalError);
}

TEST(Plan, ScheduleRunsTheWarmUpOnceAndTheCycleForEver) {
  Plan p = small_plan();
  p.variants.push_back(p.variants[0]);
  p.variants[1].name = "update";
  p.warm_up = {1};
  p.cycle = {0, 0, 1};
  std::string order;
  for (int step = 0; step < 7; ++step) order += p.variant_of_step(step).name[0];
  EXPECT_EQ(order, "ussussu");  // update | steady steady update | steady steady update
}

// fc has A of 3 x 3 and G of 2 x 2: they are summed in one message, two counts behind each, and A
// is inverted by rank 1 alone.
Plan second_order_plan() {
  Plan plan = small_plan();
  plan.blocks = {{.layer = 0, .a = 3, .g = 2}};
  TaskGraph& g = plan.variants[0];
  g.members = {0, 0, 1, 0, 0};
  g.payloads.push_back(
      {.content = Content::factors, .begin = 1, .end = 3, .elements = 13, .padded = 13});
  g.payloads.push_back(
      {.content = Content::inverse, .begin = 3, .end = 4, .elements = 7, .padded = 7});
  g.payloads.push_back(
      {.content = Content::directions, .begin = 4, .end = 5, .elements = 6, .padded = 6});
  g.add({.kind = TaskKind::inverse,
         .resource = Resource::compute,
         .subject = Subject::inverses,
         .operation = plan.operation({"inverse", {}}),
         .group = plan.group({"rank 1", {{1}}}),
         .first = factor_index(0, FactorSide::a),
         .last = factor_index(0, FactorSide::a)});
  return plan;
}

TEST(Plan, PayloadsOfFactorsHoldTheirMembers) {
  Plan plan = second_order_plan();
  EXPECT_EQ(to_json(plan_from_json(to_json(plan), "p.json")), to_json(plan));
  const std::uint64_t hash = plan.hash();
  plan.blocks[0].a = 4;
  EXPECT_NE(plan.hash(), hash);
  plan = second_order_plan();
  plan.variants[0].payloads[3].elements = 8;
  EXPECT_THROW(validate(plan), InternalError);
  plan = second_order_plan();
  plan.variants[0].members[2] = 2;  // fc has two factors
  EXPECT_THROW(validate(plan), InternalError);
  EXPECT_THROW(static_cast<void>(plan_from_json(to_json(plan), "p.json")), InputError);
}

TEST(Plan, FactorsAreNamedByTheirLayer) {
  const Plan plan = second_order_plan();
  const TaskGraph& g = plan.variants[0];
  const auto subject = [&](Subject what, std::int32_t first, std::int32_t last) {
    return subject_of(plan, g, {.subject = what, .first = first, .last = last});
  };
  EXPECT_EQ(title_of(plan, g, g.tasks.back()), "inverse fc.A");
  EXPECT_EQ(subject(Subject::inverses, 0, 1), "fc");
  EXPECT_EQ(subject(Subject::payloads, 3, 3), "factors fc");
  EXPECT_EQ(subject(Subject::payloads, 4, 4), "inverse fc.A");
  EXPECT_EQ(subject(Subject::payloads, 5, 5), "directions fc");
  EXPECT_TRUE(gradients_of(plan, g, g.tasks.back()).empty());
}

TEST(Plan, ATaskMayNotWaitForALaterOne) {
  Plan p = small_plan();
  p.variants[0].preds[0] = 1;
  EXPECT_THROW(validate(p), InternalError);
  EXPECT_THROW(static_cast<void>(plan_from_json(to_json(p), "p.json")), InputError);
}

}  // namespace
}  // namespace linerate::doc
