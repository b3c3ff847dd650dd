// The core of the runner, fed by hand: what may start after each event.
#include "linerate/exec/step_machine.hpp"

#include <gmock/gmock.h>

#include "exec/sample_plans.hpp"
#include "linerate/core/error.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Resource;
using doc::TaskGraph;
using doc::TaskKind;
using testing::ElementsAre;
using testing::IsEmpty;

/// A machine, and the tasks it started since the last question.
struct Driven {
  explicit Driven(std::shared_ptr<doc::Plan> plan) : machine(std::move(plan), 0) {}
  StepMachine machine;

  std::vector<std::uint32_t> begin(int variant = -1) {
    Moves moves;
    machine.begin_step(variant, moves);
    return started(moves);
  }
  std::vector<std::uint32_t> done(std::uint32_t task, std::int64_t step = 0) {
    Moves moves;
    machine.done({step, task}, moves);
    return started(moves);
  }
  /// Executed tasks only; those of step s count from 100 s.
  std::vector<std::uint32_t> started(const Moves& moves) {
    std::vector<std::uint32_t> all;
    for (const TaskId& id : moves.start)
      if (machine.is_open(id.step) && machine.task(id).origin == Origin::executed)
        all.push_back(id.task + static_cast<std::uint32_t>(100 * id.step));
    return all;
  }
};

TEST(StepMachine, AReportAheadOfItsLaneTakesEffectInTheLanesOrder) {
  // Gradient 1 is the last of its bucket in the Plan's order; gradient 0 is not there yet.
  Driven d(plan_of(1, {exchange_graph("steady", {2, 1})}, 3));
  d.begin();
  EXPECT_THAT(d.done(3), IsEmpty());
  EXPECT_THAT(d.done(1), IsEmpty());
  EXPECT_THAT(d.done(0), ElementsAre(2, 4));
}

TEST(StepMachine, LanesRunThroughOpenStepsInOrder) {
  TaskGraph g = exchange_graph("steady", {1});
  Driven d(plan_of(1, {g}, 1));
  d.begin();
  d.begin();
  EXPECT_THAT(d.done(0, 1), IsEmpty());  // ahead of its lane: step 0's gradient is not there
  EXPECT_THAT(d.done(0, 0), ElementsAre(1, 101));
}

TEST(StepMachine, EdgesIntoTheNextStepHoldItsTasks) {
  // backward, all-reduce; at the head of each step an update that waits for the all-reduce before.
  TaskGraph g = bucket_of_one();
  g.add({.kind = TaskKind::update, .resource = Resource::host, .operation = 1});
  const auto backward = g.add(backward_of(0));
  const auto x = g.add(sum_of(0, 1), backward);
  g.next_step = {{x, 0, 0}};
  Driven d(plan_of(1, {g}, 1));
  EXPECT_THAT(d.begin(), ElementsAre(0));  // nothing came before
  EXPECT_THAT(d.done(0), IsEmpty());
  EXPECT_THAT(d.done(backward), ElementsAre(x));
  EXPECT_THAT(d.begin(), IsEmpty());
  EXPECT_FALSE(d.machine.gate({1, 0}));
  Moves moves;
  EXPECT_THROW(d.done(0, 1), InternalError);  // before what it waits for
  d.machine.done({0, x}, moves, 70);
  EXPECT_THAT(d.started(moves), ElementsAre(100));
  EXPECT_EQ(d.machine.could_start_at({1, 0}), 70);
  EXPECT_TRUE(d.machine.gate({1, 0}));
  EXPECT_FALSE(d.machine.is_open(0));
}

TEST(StepMachine, AnEdgeHoldsOnlyTheVariantThatItNames) {
  TaskGraph first = exchange_graph("first", {1}), second = exchange_graph("second", {1});
  second.add(note_task(TaskKind::encode, Resource::codec));
  TaskGraph third = second;
  third.name = "third";
  first.next_step = {{1, 2, 1}};  // all-reduce -> encode of "second"
  auto plan = plan_of(1, {first, second, third}, 1);
  plan->warm_up = {0};
  plan->cycle = {1};
  Driven scheduled(plan), chosen(plan);
  for (Driven* d : {&scheduled, &chosen}) d->begin(), d->done(0);
  EXPECT_THAT(scheduled.begin(), IsEmpty());
  EXPECT_THAT(chosen.begin(2), ElementsAre(102));
  EXPECT_THAT(scheduled.done(1), ElementsAre(102));
}

TEST(StepMachine, WhatNoDriverMayReportIsAnError) {
  Driven d(plan_of(1, {exchange_graph("steady", {2, 1})}, 3));
  d.begin();
  EXPECT_THROW(d.done(2), InternalError);  // executed and not started
  d.done(0);
  EXPECT_THROW(d.done(0), InternalError);     // twice
  EXPECT_THROW(d.done(1, 1), InternalError);  // of a step that nobody began
  d.done(3);
  EXPECT_THROW(d.done(3), InternalError);  // reported ahead of its lane, twice
}

// Tasks of {2, 1}: backward 0, backward 1, all-reduce (2), backward 2 (3), all-reduce (4).
TEST(StepMachine, KnowsFromWhichMomentOnATaskCouldStart) {
  StepMachine machine(plan_of(1, {exchange_graph("steady", {2, 1})}, 3), 0);
  Moves moves;
  machine.begin_step(-1, moves, 100);
  EXPECT_EQ(machine.could_start_at({0, 0}), 100);
  machine.done({0, 0}, moves, 110);
  EXPECT_EQ(machine.ready_at({0, 1}), 100);  // it follows nothing but its lane
  EXPECT_EQ(machine.could_start_at({0, 1}), 110);
  machine.done({0, 1}, moves, 130);
  EXPECT_EQ(machine.ready_at({0, 2}), 130);
  // The moments are the caller's: a report may come late and speak of earlier.
  machine.done({0, 3}, moves, 125);
  EXPECT_EQ(machine.free_at(Resource::compute), 130);
  EXPECT_EQ(machine.ready_at({0, 4}), 125);
}

}  // namespace
}  // namespace linerate::exec
