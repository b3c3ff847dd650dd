#include "linerate/replan/run_planner.hpp"

#include <gmock/gmock.h>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::replan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<PlannedParameter> four() {
  return {{"a", 1000, DType::f32},
          {"b", 2000, DType::f32},
          {"c", 3000, DType::f32},
          {"d", 4000, DType::f32}};
}

RunPlanner planner_of(comm::Communicator& communicator, const std::string& strategy,
                      int measured_steps = 2) {
  return RunPlanner(communicator, four(),
                    {.strategy = doc::parse_strategy(strategy), .measured_steps = measured_steps});
}

std::vector<std::string> variants_of(const doc::Plan& plan) {
  std::vector<std::string> names;
  for (const doc::TaskGraph& g : plan.variants) names.push_back(g.name);
  return names;
}

TEST(RunPlanner, BeginsInReverseRegistrationOrderWithAFirstStep) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    const RunPlanner planner = planner_of(communicator, "ddp");
    EXPECT_THAT(planner.order(), ElementsAre(3, 2, 1, 0));
    EXPECT_THAT(variants_of(*planner.plan()),
                ElementsAre("first-step", "first-step-weighted", "steady", "steady-weighted"));
    EXPECT_EQ(planner.plan()->variant_of_step(0).name, "first-step");
    EXPECT_EQ(planner.plan()->variant_of_step(1).name, "steady");
    EXPECT_FALSE(planner.settled());
  });
}

TEST(RunPlanner, TakesRankZerosOrderAndTheMeanOfTheTimes) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    RunPlanner planner = planner_of(communicator, "ddp");
    const std::uint64_t before = planner.plan()->hash();
    // Rank 0 saw c, a, d, b; rank 1 another order.
    const std::vector<double> seen = communicator.rank() == 0 ? std::vector<double>{1, 3, 0, 2}
                                                              : std::vector<double>{3, 3, 2, 4};
    EXPECT_TRUE(planner.after_step(seen));
    EXPECT_THAT(planner.order(), ElementsAre(2, 0, 3, 1));
    std::vector<double> ready;
    for (const doc::Gradient& g : planner.workload().gradients) ready.push_back(g.ready_s);
    EXPECT_THAT(ready, ElementsAre(1, 2, 3, 3));  // means, never decreasing
    EXPECT_EQ(planner.plan()->variant_of_step(planner.steps()).name, "steady");
    EXPECT_NE(planner.plan()->hash(), before);
    EXPECT_TRUE(planner.settled());
    EXPECT_EQ(planner.steps(), 1);
    EXPECT_FALSE(planner.after_step(seen));
    EXPECT_EQ(planner.steps(), 2);
  });
}

TEST(RunPlanner, PlansThatDependOnTimesAreMadeAgainFromAWindow) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    for (const auto& line : plan::exchanges().lines()) {
      RunPlanner planner = planner_of(communicator, line.name, 3);
      const plan::PlansBy by = line.make.traits.plans_by;
      int changes = 0;
      for (int step = 0; step < 6; ++step)
        changes += planner.after_step(std::vector{4., 3., 2., 1.});
      EXPECT_EQ(changes, by == plan::PlansBy::nothing ? 0
                         : by == plan::PlansBy::order ? 1
                                                      : 2)
          << line.name;
      EXPECT_TRUE(planner.settled()) << line.name;
      // Where collectives were not calibrated they are probed, once, for plans that depend on them.
      EXPECT_EQ(planner.plan()->ranks, 2);
    }
  });
}

TEST(RunPlanner, ParametersWithoutAGradientComeLast) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    RunPlanner planner = planner_of(communicator, "ddp");
    planner.after_step(std::vector{-1., 2., -1., 1.});
    EXPECT_THAT(planner.order(), ElementsAre(3, 1, 2, 0));  // the unused ones as they stood before
  });
}

TEST(RunPlanner, RefusesWhatCannotTrain) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    for (const char* strategy : {"ddp+codec(ratio=8)", "dear+codec"}) try {
        planner_of(communicator, strategy);
        ADD_FAILURE() << strategy;
      } catch (const UsageError& e) {
        EXPECT_THAT(e.what(), HasSubstr("it cannot train"));
      }
    EXPECT_THROW(planner_of(communicator, "teleport"), UsageError);
  });
}

TEST(RunPlanner, BuffersAreBroadcastWhereThereAreAny) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    for (const std::int64_t bytes : {0, 24}) {
      const RunPlanner planner(communicator, four(),
                               {.strategy = doc::parse_strategy("ddp"), .buffer_bytes = bytes});
      std::vector<std::int64_t> sent;
      for (const doc::Task& t : planner.plan()->variants.back().tasks)
        if (t.kind == doc::TaskKind::broadcast) sent.push_back(t.bytes);
      if (bytes == 0)
        EXPECT_THAT(sent, IsEmpty());
      else
        EXPECT_THAT(sent, ElementsAre(24));
    }
  });
}

}  // namespace
}  // namespace linerate::replan
