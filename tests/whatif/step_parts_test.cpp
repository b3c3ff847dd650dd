#include "linerate/whatif/preset_model.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "linerate/plan/exchange.hpp"
#include "linerate/sim/simulator.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::whatif {
namespace {

using doc::Content;
using doc::StepPart;
using doc::TaskKind;
using ::testing::ElementsAre;

doc::Task of_kind(doc::Task task, TaskKind kind) {
  task.kind = kind;
  return task;
}

doc::Task of_payload(doc::Task task, std::int32_t payload) {
  task.subject = doc::Subject::payloads;
  task.first = task.last = payload;
  return task;
}

// One byte a second and no latency, so that a collective of n bytes between two ranks takes n s.
cost::CostModel a_byte_a_second() {
  return cost::CostModel(linerate::support::two_rank_cluster(0, 1));
}

// In brackets when they run.
doc::Plan second_order_step() {
  using linerate::support::compute;
  using linerate::support::exchange;
  doc::Plan plan = linerate::support::empty_plan(2);
  doc::TaskGraph& g = plan.variants.front();
  for (const Content content : {Content::gradients, Content::factors, Content::inverse})
    g.payloads.push_back({.content = content});
  const auto forward = g.add(of_kind(compute(1), TaskKind::forward));           // [0, 1]
  const auto a = g.add(of_kind(compute(2), TaskKind::factor), forward);         // [1, 3]
  const auto backward = g.add(of_kind(compute(4), TaskKind::backward), a);      // [3, 7]
  const auto factor = g.add(of_kind(compute(3), TaskKind::factor), backward);   // [7, 10]
  const auto gradients = g.add(of_payload(exchange(5), 0), backward);           // [7, 12]
  const auto factors = g.add(of_payload(exchange(4), 1), factor);               // [12, 16]
  const auto inverse = g.add(of_kind(compute(6), TaskKind::inverse), factors);  // [16, 22]
  doc::Task send = exchange(2, doc::kWhole, TaskKind::broadcast);
  send.root = 0;
  const auto inverses = g.add(of_payload(send, 2), inverse);  // [22, 24]
  const auto direction =
      g.add(of_kind(compute(1), TaskKind::precondition), gradients, inverses);  // [24, 25]
  g.add(of_kind(compute(1), TaskKind::update), direction);                      // [25, 26]
  return plan;
}

TEST(StepParts, AreExposedTimesThatSumToTheStep) {
  sim::Simulator simulator;
  const doc::Plan plan = second_order_step();
  const cost::CostModel model = a_byte_a_second();
  const double step_s = simulator.step_s(plan, model);
  ASSERT_EQ(step_s, 26);
  const doc::StepParts parts = step_parts(plan, model, step_s, simulator);
  // Forward, backward and update alone: 6. With gradients [5, 10]: 11. With factors, of whose 5 s
  // gradients hide 3: 13. With their all-reduce behind that of gradients: 17. With inverse and
  // preconditioning: 24. With the broadcast: 26.
  EXPECT_THAT(parts, ElementsAre(6, 5, 2, 4, 7, 2));
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), step_s);
}

TEST(UpTo, LinksTasksAcrossThoseThatAreLeftOut) {
  const doc::Plan thin = plan::up_to(second_order_step(), StepPart::gradient_communication);
  const doc::TaskGraph& g = thin.variants.front();
  std::vector<TaskKind> kinds;
  for (const doc::Task& task : g.tasks) kinds.push_back(task.kind);
  ASSERT_THAT(kinds, ElementsAre(TaskKind::forward, TaskKind::backward, TaskKind::all_reduce,
                                 TaskKind::update));
  const auto before = [&g](std::size_t task) {
    const auto span = g.predecessors(task);
    return std::vector<std::uint32_t>(span.begin(), span.end());
  };
  EXPECT_THAT(before(1), ElementsAre(0));  // through the factor of the input
  EXPECT_THAT(before(2), ElementsAre(1));
  EXPECT_THAT(before(3), ElementsAre(1, 2));  // through everything, and the gradients
  EXPECT_EQ(g.payloads.size(), 3u);
}

TEST(UpTo, KeepsEdgesIntoTheNextStep) {
  doc::Plan plan = second_order_step();
  // The gradients' all-reduce holds the next forward pass; without it backward does.
  plan.variants.front().next_step = {{4, 0, 0}, {4, 3, 0}};
  const doc::Plan with = plan::up_to(plan, StepPart::gradient_communication);
  ASSERT_EQ(with.variants.front().next_step.size(), 1u);  // the factor is gone
  EXPECT_EQ(with.variants.front().next_step[0].from, 2u);
  EXPECT_EQ(with.variants.front().next_step[0].to, 0u);
  const doc::Plan without = plan::up_to(plan, StepPart::forward_backward);
  ASSERT_EQ(without.variants.front().next_step.size(), 1u);
  EXPECT_EQ(without.variants.front().next_step[0].from, 1u);
}

TEST(UpTo, WithTheLastPartKeepsEveryTask) {
  const doc::Plan plan = second_order_step();
  const doc::Plan same = plan::up_to(plan, StepPart::inverse_communication);
  EXPECT_EQ(same.hash(), plan.hash());
}

// What is copied or coded for a message belongs to what the message is for.
TEST(UpTo, CopiesGoWithTheirPayload) {
  doc::Plan plan = linerate::support::empty_plan(2);
  doc::TaskGraph& g = plan.variants.front();
  for (const Content content :
       {Content::gradients, Content::factors, Content::inverse, Content::directions})
    g.payloads.push_back({.content = content});
  g.payloads.push_back({.content = Content::encoded, .of = 0});
  g.payloads.push_back({.content = Content::eigen});
  const auto part = [&](TaskKind kind, std::int32_t payload) {
    return plan::part_of(plan, g, of_payload(of_kind({}, kind), payload));
  };
  EXPECT_EQ(part(TaskKind::copy, 0), StepPart::gradient_communication);
  EXPECT_EQ(part(TaskKind::encode, 4), StepPart::gradient_communication);
  EXPECT_EQ(part(TaskKind::copy, 1), StepPart::factor_computation);
  EXPECT_EQ(part(TaskKind::copy, 2), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::copy, 5), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::broadcast, 3), StepPart::inverse_communication);
  EXPECT_EQ(part(TaskKind::all_reduce, 1), StepPart::factor_communication);
}

}  // namespace
}  // namespace linerate::whatif
