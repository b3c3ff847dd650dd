#include "linerate/sim/simulator.hpp"

#include <gmock/gmock.h>

#include "sim/hand_plan.hpp"

namespace linerate::sim {
namespace {

using support::compute;
using support::exchange;
using ::testing::ElementsAre;

// Warm-up: compute 1, exchange. Cycle: compute 2, which waits for the exchange of the step before,
// under another index in each variant.
doc::Plan two_variants() {
  doc::Plan plan = support::empty_plan(2);
  doc::TaskGraph& steady = plan.variants.front();
  const auto front = steady.add(compute(1));
  const auto update = steady.add(compute(1), front);
  steady.add(exchange(8), update);
  steady.next_step = {{2, 1, 0}};
  doc::TaskGraph& first = plan.variants.emplace_back();
  first.name = "first-step";
  first.add(exchange(8), first.add(compute(1)));
  first.next_step = {{1, 1, 0}, {0, 0, 1}};
  plan.warm_up = {1};
  return plan;
}

TEST(Unroll, ASingleStepIsThePlansOwn) {
  Unrolled out;
  const doc::Plan plan = two_variants();
  unroll(plan, 0, 3, out);  // memory that was used before
  for (const int step : {0, 1}) {
    unroll(plan, step, 1, out);
    const std::int32_t variant = plan.variant_index_of_step(step);
    EXPECT_EQ(&out.graph(), &plan.variants.at(to_index(variant)));
    EXPECT_THAT(out.begins, ElementsAre(0));
    EXPECT_EQ(out.end(0), out.graph().tasks.size());
  }
  unroll(plan, 0, 2, out);
  EXPECT_EQ(out.end(1), out.graph().tasks.size());
}

TEST(Unroll, EdgesThatNoStepOfTheCycleTakesCloseIt) {
  doc::Plan plan = two_variants();
  EXPECT_TRUE(reaches_next_step(plan));
  plan.cycle = {1, 0};
  plan.variants[1].next_step.clear();  // steady only leads into steady
  EXPECT_FALSE(reaches_next_step(plan));
}

}  // namespace
}  // namespace linerate::sim
