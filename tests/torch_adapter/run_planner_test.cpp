#include "linerate/torch_adapter/run_planner.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/sim/simulate.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

std::vector<doc::Gradient> four() {
  std::vector<doc::Gradient> all(4);
  for (std::size_t i = 0; i < 4; ++i)
    all[i] = {.name = std::string(1, static_cast<char>('a' + i)),
              .elements = 1000 * static_cast<std::int64_t>(i + 1),
              .rows = 1};
  return all;
}

RunPlanner planner_of(comm::Communicator& communicator, const std::string& strategy,
                      int measured_steps = 2) {
  return RunPlanner(communicator, four(),
                    {.strategy = doc::parse_strategy(strategy), .measured_steps = measured_steps});
}

TEST_ON(RunPlanner, BeginsInReverseRegistrationOrderWithAFirstStep, comm::run_ranks, 1) {
  const RunPlanner planner = planner_of(communicator, "ddp");
  EXPECT_THAT(planner.order(), ElementsAre(3, 2, 1, 0));
  const auto named = [](const char* name) { return Field(&doc::TaskGraph::name, name); };
  EXPECT_THAT(planner.plan()->variants,
              ElementsAre(named("first-step"), named("first-step-weighted"), named("steady"),
                          named("steady-weighted")));
  EXPECT_EQ(planner.plan()->variant_of_step(0).name, "first-step");
  EXPECT_EQ(planner.plan()->variant_of_step(1).name, "steady");
  EXPECT_FALSE(planner.settled());
}

TEST_ON(RunPlanner, TakesRankZerosOrderAndTheMeanOfTheTimes, comm::run_ranks, 2) {
  RunPlanner planner = planner_of(communicator, "ddp");
  const std::uint64_t before = planner.plan()->hash();
  // Rank 0 saw c, a, d, b; rank 1 another order.
  const std::vector<double> seen =
      communicator.rank() == 0 ? std::vector<double>{1, 3, 0, 2} : std::vector<double>{3, 3, 2, 4};
  EXPECT_TRUE(planner.after_step({.ready_s = seen}));
  EXPECT_THAT(planner.order(), ElementsAre(2, 0, 3, 1));
  std::vector<double> ready;
  for (const doc::Gradient& g : planner.workload().gradients) ready.push_back(g.ready_s);
  EXPECT_THAT(ready, ElementsAre(1, 2, 3, 3));  // means, never decreasing
  EXPECT_EQ(planner.plan()->variant_of_step(planner.steps()).name, "steady");
  EXPECT_NE(planner.plan()->hash(), before);
  EXPECT_TRUE(planner.settled());
  EXPECT_EQ(planner.steps(), 1);
  EXPECT_FALSE(planner.after_step({.ready_s = seen}));
  EXPECT_EQ(planner.steps(), 2);
}

TEST_ON(RunPlanner, PlansThatDependOnTimesAreMadeAgainFromAWindow, comm::run_ranks, 2) {
  for (const auto& line : plan::exchanges().lines()) {
    RunPlanner planner = planner_of(communicator, line.name, 3);
    const plan::PlansBy by = line.make.traits.plans_by;
    int changes = 0;
    for (int step = 0; step < 6; ++step)
      changes += planner.after_step({.ready_s = {4., 3., 2., 1.}});
    EXPECT_EQ(changes, by == plan::PlansBy::nothing ? 0
                       : by == plan::PlansBy::order ? 1
                                                    : 2)
        << line.name;
    EXPECT_TRUE(planner.settled()) << line.name;
    // Where collectives were not calibrated they are probed, once, for plans that depend on them.
    EXPECT_EQ(planner.plan()->ranks, 2);
  }
}

// ---- "auto" ----

doc::Cluster network(int ranks, double bandwidth, double latency_s) {
  doc::Cluster cluster;
  cluster.name = "test";
  cluster.ranks = ranks;
  cluster.network = {.bandwidth_bytes_per_s = bandwidth, .latency_s = latency_s};
  return cluster;
}

struct Asked {
  std::string strategy = "auto";
  double most_above_ddp = std::numeric_limits<double>::infinity();
  double bandwidth = 4e6, latency_s = 1e-5;
};

struct Chosen : RunPlanner {
  explicit Chosen(comm::Communicator& c, const Asked& asked = {})
      : RunPlanner(c, four(),
                   {.strategy = doc::parse_strategy(asked.strategy),
                    .cluster = network(c.size(), asked.bandwidth, asked.latency_s),
                    .measured_steps = 2,
                    .most_above_ddp = asked.most_above_ddp}) {}
  bool step(double step_s) {
    return after_step({.ready_s = {3e-3, 2e-3, 1e-3, 0}, .step_s = step_s, .before_s = 4e-3});
  }
  void window(double step_s) {
    step(step_s);
    step(step_s);
  }
  /// Steps take `ddp_s` under ddp and `other_s` under anything else; one after a change of plan is
  /// a slow one. The strategies in force, of each step one.
  std::vector<std::string> run(double ddp_s, double other_s) {
    std::vector<std::string> in_force;
    bool changed = true;
    for (int number = 0; number < 20 && !settled(); ++number) {
      in_force.push_back(plan()->strategy);
      changed = step(changed ? 100 : in_force.back().starts_with("ddp") ? ddp_s : other_s);
    }
    return in_force;
  }
};

/// On every rank. Collective.
void require_same_plan(comm::Communicator& communicator, const RunPlanner& planner) {
  comm::require_same(communicator, "plan", {std::to_string(planner.plan()->hash())});
}

/// Networks that favour few messages, many messages, and the split all-reduce.
const Asked kNetworks[] = {{.bandwidth = 1e9, .latency_s = 1e-3},
                           {.bandwidth = 1e7, .latency_s = 1e-7},
                           {.bandwidth = 4e6, .latency_s = 1e-5},
                           {.bandwidth = 1e12, .latency_s = 1e-9}};

/// Over the registry: none that can train is predicted shorter by more than kLeastGain.
TEST_ON(Auto, TakesTheExchangeWhoseStepIsPredictedShortest, comm::run_ranks, 2) {
  std::set<std::string> chosen;
  for (const Asked& asked : kNetworks) {
    Chosen run(communicator, asked);
    EXPECT_EQ(run.plan()->strategy, "ddp");
    run.step(1);  // the first
    EXPECT_EQ(run.measured_plans(), 0);
    run.window(1);
    ASSERT_EQ(run.measured_plans(), 1);
    EXPECT_EQ(run.plan()->strategy, doc::to_text(run.strategy()));
    EXPECT_DOUBLE_EQ(*run.workload().forward_s, 4e-3);
    const doc::Cluster cluster = network(2, asked.bandwidth, asked.latency_s);
    const cost::CostModel cost(cluster);
    for (const auto& line : plan::exchanges().lines()) {
      const doc::Strategy strategy = doc::parse_strategy(line.name);
      if (!plan::traits_of(strategy).runs.train) continue;
      const doc::Plan plan = plan::make_plan(run.workload(), cluster, strategy, 2,
                                             {.housekeeping = plan::Housekeeping{}});
      EXPECT_GE(sim::simulate(plan, cost).step_s,
                *run.predicted_step_s() * (1 - RunPlanner::kLeastGain))
          << line.name << " instead of " << run.plan()->strategy;
    }
    chosen.insert(run.plan()->strategy);
  }
  EXPECT_GE(chosen.size(), 2u) << testing::PrintToString(chosen);
}

TEST_ON(Auto, PlansAgainWhenAWindowDepartsAndGivesAllRanksOnePlan, comm::run_ranks, 3) {
  Chosen run(communicator);
  run.step(1);
  run.window(1);
  const double predicted_s = *run.predicted_step_s();
  run.window(predicted_s * 1.1);
  EXPECT_EQ(run.measured_plans(), 1);  // within 20 %
  // A mean over ranks: rank 0 alone departs, by less than that of all.
  run.window(predicted_s * (communicator.rank() == 0 ? 1.5 : 1));
  EXPECT_EQ(run.measured_plans(), 1);
  run.window(predicted_s * 1.3);
  EXPECT_EQ(run.measured_plans(), 2);
  // Collectives of threads were probed: nothing in common with 4 MB/s.
  EXPECT_NE(*run.predicted_step_s(), predicted_s);
  // From then on departures count from what was measured.
  run.window(predicted_s * 1.3);
  EXPECT_EQ(run.measured_plans(), 2);
  EXPECT_FALSE(run.settled());
  require_same_plan(communicator, run);
  EXPECT_EQ(run.plan()->strategy, doc::to_text(run.strategy()));
}

TEST_ON(Auto, KeepsWhatFollowsTheExchangeAndRefusesOptions, comm::run_ranks, 2) {
  Chosen run(communicator, {.strategy = "auto+topk(density=0.1)"});
  run.step(1);
  run.window(1);
  EXPECT_THAT(run.plan()->strategy, HasSubstr("+topk(density=0.1)"));
  EXPECT_THAT(thrown_by([&] { Chosen(communicator, {.strategy = "auto(topk)"}); }),
              HasSubstr("ddp+auto(topk)"));
}

/// Whatever was predicted: what steps refute does not run, and is not chosen again.
TEST_ON(Auto, DropsAChoiceThatIsSlowerThanDdp, comm::run_ranks, 2) {
  int tried = 0;
  for (const bool longer : {true, false})
    for (Asked asked : kNetworks) {
      Chosen free(communicator, asked);
      asked.most_above_ddp = 0.01;
      Chosen run(communicator, asked);
      for (Chosen* one : {&free, &run}) one->step(1), one->window(1);
      const std::string choice = free.plan()->strategy;
      const auto step_s = [&] { return run.plan()->strategy == "ddp" ? 1 : longer ? 1.02 : 0.98; };
      for (int i = 0; i < 12; ++i) run.step(step_s());
      ASSERT_EQ(run.trial().has_value(), choice != "ddp") << choice;
      if (choice == "ddp") continue;
      ++tried;
      EXPECT_EQ(run.plan()->strategy, longer ? "ddp" : choice);
      EXPECT_EQ(run.gave_up(), longer);
      EXPECT_DOUBLE_EQ(*run.predicted_step_s(), longer ? 1 : 0.98);
      EXPECT_EQ(run.measured_plans(), 2);
      EXPECT_FALSE(run.settled());
      run.window(5), run.window(5);
      if (longer) {
        EXPECT_NE(run.plan()->strategy, choice);
        // Of a trial that is under way there is no result, not even that of the one before.
        EXPECT_EQ(run.trial().has_value(),
                  run.trial_in_words().find(choice + " was tried") != std::string::npos);
      }
    }
  EXPECT_GE(tried, 2);
}

// ---- a trial against ddp ----

TEST_ON(Trial, StrategyAndDdpTakeTurnsAndTheRanksDecideTogether, comm::run_ranks, 2) {
  for (const bool longer : {true, false}) {
    Chosen run(communicator, {"dear", 0.01});
    // Rank 0 alone would decide otherwise; the mean is 1.015 or 1.005 times ddp's.
    const double mean_s = longer ? 1.015 : 1.005;
    const double other_s = mean_s + (communicator.rank() == 0 ? -1 : 1) * (longer ? 0.1 : -0.1);
    const std::vector<std::string> turns = run.run(1, other_s);
    EXPECT_THAT(turns, ElementsAre("ddp",                                        // the first step
                                   "ddp", "ddp", "ddp", "dear", "dear", "dear",  //
                                   "ddp", "ddp", "ddp", "dear", "dear", "dear"));
    EXPECT_TRUE(run.settled());
    EXPECT_EQ(run.gave_up(), longer);
    EXPECT_EQ(run.plan()->strategy, longer ? "ddp" : "dear");
    EXPECT_EQ(doc::to_text(run.strategy()), run.plan()->strategy);
    EXPECT_DOUBLE_EQ(run.trial()->ddp_s, 1);
    EXPECT_DOUBLE_EQ(run.trial()->strategy_s, mean_s);
    EXPECT_EQ(run.trial_in_words(),
              std::string("strategy dear was tried in turn with ddp: a step took ") +
                  (longer ? "1015.0 ms, and 1000.0 ms with ddp; ddp runs"
                          : "1005.0 ms, and 1000.0 ms with ddp; dear runs"));
    require_same_plan(communicator, run);
  }
}

TEST_ON(Trial, KeepsWireFormatAndExtras, comm::run_ranks, 2) {
  for (const auto& [asked, stays] :
       {std::pair{"optimal(cap=1MiB, wire=fp16)", "ddp(wire=fp16)"},
        {"dear(bucket=1MiB)+randomk(density=0.1)", "ddp+randomk(density=0.1)"}}) {
    Chosen run(communicator, {asked, 0.01});
    EXPECT_EQ(run.run(1, 2).size(), 13u) << asked;
    EXPECT_EQ(run.plan()->strategy, stays);
  }
}

TEST(Trial, IsOnlyOfStrategiesThatPlanByCost) {
  comm::run_ranks(2, [](comm::Communicator& c) {
    for (const std::string strategy : {"bulk", "ddp", "wfbp"}) {
      Chosen run(c, {strategy, 0.01});
      run.run(1, 2);
      EXPECT_FALSE(run.trial()) << strategy;
      EXPECT_EQ(run.trial_in_words(), "") << strategy;
      EXPECT_EQ(run.plan()->strategy, strategy);
    }
    Chosen run(c, {"dear"});
    EXPECT_THAT(run.run(1, 2), ElementsAre("dear", "dear", "dear"));
    EXPECT_FALSE(run.trial());
  });
  comm::run_ranks(1, [](comm::Communicator& c) {
    Chosen run(c, {"dear", 0.01});
    run.run(1, 2);
    EXPECT_EQ(run.plan()->strategy, "dear");
  });
}

TEST_ON(Trial, ProbesForBothAndRefusesWrongStrategiesAtOnce, comm::run_ranks, 2) {
  RunPlanner planner(
      communicator, four(),
      {.strategy = doc::parse_strategy("dear"), .measured_steps = 1, .most_above_ddp = -1});
  for (int step = 0; step < 9; ++step)
    planner.after_step({.ready_s = {3e-3, 2e-3, 1e-3, 0}, .step_s = 1});
  EXPECT_TRUE(planner.gave_up());
  EXPECT_THROW(Chosen(communicator, {"dear(layers=1, bucket=1MiB)", 0.01}), UsageError);
}

// ---- steps that are enqueued ----

/// Collectives of a device: 1 ms each, and 1 ns a byte.
class TimedDevice final : public calibrate::CallTimer {
 public:
  std::vector<double> time(std::span<const calibrate::CallRun> runs) override {
    std::vector<double> seconds;
    for (const calibrate::CallRun& run : runs)
      seconds.push_back(1e-3 + 1e-9 * static_cast<double>(run.call.bytes));
    return seconds;
  }
  double elapsed() const override { return 0; }
};

/// Steps whose times are known when a window ends, next to the same known at once: over the
/// registry, the plans are the same, and made of the device's prices.
TEST_ON(Enqueued, StepsAreReadWhenTheirWindowEndsAndLeadToTheSamePlans, comm::run_ranks, 2) {
  int windows = 0;
  for (const auto& line : plan::exchanges().lines()) {
    int step = 0;
    const auto times = [&step](const doc::Plan& plan) {
      const double slow = plan.strategy.starts_with("ddp") ? 1 : 0.5;
      const double t = 1 + 0.1 * (step % 3);
      return StepTimes{.ready_s = {3e-3 * t, 2e-3 * t, 1e-3 * t, 0}, .step_s = slow * t};
    };
    std::deque<StepTimes> waiting;
    RunPlanner::Options options{
        .strategy = doc::parse_strategy(line.name), .measured_steps = 2, .most_above_ddp = 0.01};
    RunPlanner::Options enqueued = options;
    enqueued.enqueued = {[&](std::span<StepTimes> window) {
                           for (StepTimes& one : window) {
                             one.ready_s = waiting.front().ready_s;
                             one.step_s = waiting.front().step_s;
                             waiting.pop_front();
                           }
                           ++windows;
                         },
                         [](std::int64_t) { return std::make_unique<TimedDevice>(); }};
    options.enqueued = {[](std::span<StepTimes>) {}, enqueued.enqueued->make_timer};
    RunPlanner late(communicator, four(), enqueued), known(communicator, four(), options);
    for (; step < 16; ++step) {
      const bool by_times = line.make.traits.plans_by >= plan::PlansBy::times;
      ASSERT_EQ(late.needs_times(), !late.settled() && by_times) << line.name;
      waiting.push_back(times(*late.plan()));
      ASSERT_EQ(late.after_step({}), known.after_step(times(*known.plan()))) << line.name;
      ASSERT_EQ(late.plan()->hash(), known.plan()->hash()) << line.name << " " << step;
    }
    EXPECT_TRUE(late.settled());
    EXPECT_EQ(doc::to_json(late.workload()), doc::to_json(known.workload())) << line.name;
  }
  EXPECT_GE(windows, 20);
}

// ---- with a measured second-order method ----

struct Layers : RunPlanner {
  explicit Layers(comm::Communicator& c, const std::string& strategy)
      : RunPlanner(c, parameters(), options(strategy)), rank(c.rank()) {}

  /// Layers of 8, 40 and 8 inputs and outputs.
  static std::vector<doc::Gradient> parameters() {
    return {{.name = "small", .elements = 72, .layer = 0, .rows = 8},
            {.name = "large", .elements = 40 * 41, .layer = 1, .rows = 40},
            {.name = "last", .elements = 72, .layer = 2, .rows = 8}};
  }
  static RunPlanner::Options options(const std::string& strategy) {
    SecondOrder second_order;
    for (const int d : {8, 40, 8}) {
      second_order.blocks.push_back(
          {.layer = static_cast<int>(second_order.layers.size()), .a = d + 1, .g = d});
      second_order.layers.push_back("layer" + std::to_string(d));
    }
    second_order.cost = doc::SecondOrderCost{.inverse_s_per_cube = 1e-9};
    return {.strategy = plan::with_exchange(doc::parse_strategy(strategy)),
            .cluster = network(2, 1e9, 1e-5),
            .measured_steps = 2,
            .second_order = second_order};
  }
  /// One step in which everything takes `times` as long on rank 0, and three times that on rank 1.
  bool step(double step_s, double times = 1, plan::CurvatureUpdate update = {true, true}) {
    const double t = times * (rank == 0 ? 1 : 3);
    StepTimes measured{.ready_s = {t * 3e-3, t * 2e-3, 0}, .step_s = step_s, .update = update};
    if (update.factors)
      measured.curvature = CurvatureTimes{{t * 1e-3, t * 2e-3, t * 3e-3},
                                          {t * 4e-3, t * 7e-3, t * 5e-3, t * 8e-3, t * 6e-3, -1},
                                          {t * 1e-2, -1, t * 5e-2, -1, -1, -1}};
    return after_step(measured);
  }
  int rank;
};

TEST_ON(MeasuredSecondOrder, PlansByTheMeansOfAWindow, comm::run_ranks, 2) {
  Layers layers(communicator, "kfac(spd, factors=1)");
  layers.step(1);  // the first, whose order counts
  layers.step(1);
  EXPECT_FALSE(layers.predicted_step_s());
  layers.step(1);
  const doc::Workload& w = layers.workload();
  EXPECT_NEAR(*w.layers[1].forward_s, 4e-3, 1e-12);
  EXPECT_NEAR(*w.blocks[0].factor_a_s, 8e-3, 1e-12);
  EXPECT_NEAR(*w.blocks[1].factor_g_s, 16e-3, 1e-12);
  EXPECT_FALSE(w.blocks[2].factor_g_s);  // nobody measured it
  EXPECT_NEAR(w.gradients.back().ready_s, 6e-3, 1e-12);
  // A of 9 x 9 and of 41 x 41, and what they say of all others.
  double inverse_s = 0;
  for (const doc::TaskGraph& graph : layers.plan()->variants)
    for (const doc::Task& task : graph.tasks)
      if (task.kind == doc::TaskKind::inverse) inverse_s = std::max(inverse_s, task.seconds);
  EXPECT_NEAR(inverse_s, 0.1, 1e-9);
  EXPECT_GT(layers.predicted_step_s().value_or(0), 0.1);
  EXPECT_FALSE(layers.settled());
}

TEST_ON(MeasuredSecondOrder, PlansAgainWhereStepsDepartFromThePrediction, comm::run_ranks, 2) {
  for (const char* strategy : {"kfac(spd, factors=1)", "kfac(mem, factors=1)",
                               "kfac(mpd, factors=1)", "bulk+kfac(d, factors=1)"}) {
    Layers layers(communicator, strategy);
    const auto predicted_after = [&](double step_s, double times) {
      layers.step(step_s, times);
      layers.step(step_s, times);
      return layers.predicted_step_s().value_or(0);
    };
    layers.step(1);
    const double once_s = predicted_after(1, 1);
    // Within a fifth nobody looks at what has become of the parts.
    EXPECT_EQ(predicted_after(once_s * 1.19, 2), once_s) << strategy;
    // Nor after a pause before one of two steps.
    layers.step(once_s * 20, 2);
    EXPECT_EQ(predicted_after(once_s, 2), once_s) << strategy;
    layers.step(once_s, 2);
    const double twice_s = predicted_after(once_s * 1.21, 2);
    EXPECT_GT(twice_s, 1.5 * once_s) << strategy;
    // That was wrong for these steps; what counts from here on is a change of theirs.
    EXPECT_EQ(predicted_after(once_s * 1.21, 1), twice_s) << strategy;
    EXPECT_NEAR(predicted_after(once_s * 0.9, 1), once_s, 1e-9) << strategy;
  }
}

// Ranks that measure differently do as rank 0 has planned.
TEST_ON(MeasuredSecondOrder, GivesEveryRankTheSamePlan, comm::run_ranks, 2) {
  Layers layers(communicator, "kfac(hybrid, fraction=0.5, factors=1)");
  for (int s = 0; s < 3; ++s) layers.step(1);
  require_same_plan(communicator, layers);
  EXPECT_THAT(layers.order(), ElementsAre(2, 1, 0));
}

TEST_ON(MeasuredSecondOrder, AWindowHasEveryKindOfStep, comm::run_ranks, 2) {
  Layers layers(communicator, "kfac(spd, factors=1, inverses=4)");
  layers.step(1);
  for (int s = 0; s < 3; ++s) layers.step(1, 1, {true, false});
  EXPECT_FALSE(layers.predicted_step_s());  // three updates of factors, none of inverses
  layers.step(1, 1, {true, true});
  EXPECT_TRUE(layers.predicted_step_s());
}

TEST_ON(MeasuredSecondOrder, StaysWhereOwnersMust, comm::run_ranks, 2) {
  RunPlanner::Options options = Layers::options("kfac(dp, factors=1)");
  options.second_order->measured = false;
  RunPlanner planner(communicator, Layers::parameters(), options);
  for (int s = 0; s < 6; ++s)
    planner.after_step({.ready_s = {3, 2, 1}, .step_s = 1, .update = {true, true}});
  EXPECT_TRUE(planner.settled());
}

TEST_ON(RunPlanner, ParametersWithoutAGradientComeLast, comm::run_ranks, 1) {
  RunPlanner planner = planner_of(communicator, "ddp");
  planner.after_step({.ready_s = {-1., 2., -1., 1.}});
  EXPECT_THAT(planner.order(), ElementsAre(3, 1, 2, 0));  // the unused ones as they stood before
}

}  // namespace
}  // namespace linerate::torch_adapter
