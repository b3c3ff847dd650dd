// Simulator and runner obey one Plan: over every strategy and extra of the registry, rank counts
// and awkward workloads, six steps each, both start the same tasks in the same order in each lane,
// with the same bytes, names and times; whether all steps are open at once or, as training and
// rehearsal have it, each when the computation of the one before is over.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <set>

#include "agreement/cases.hpp"
#include "agreement/virtual_run.hpp"
#include "linerate/sim/simulate.hpp"
#include "sim/random_plan.hpp"
#include "sim/task_trace.hpp"

namespace linerate {
namespace {

using support::cluster_of;
using support::plan_of;
using support::Setting;

constexpr int kSteps = 6;
constexpr double kNanosecond = 1e-9;

/// One line a task of a lane: what both sides must agree on, times apart.
std::string line_of(const doc::Plan& plan, std::int64_t step, std::uint32_t task) {
  const doc::TaskGraph& graph = plan.variant_of_step(step);
  return fmt::format("step {} ({}) task {}: {}, {} bytes", step, graph.name, task,
                     title_of(plan, graph, graph.tasks[task]), graph.tasks[task].bytes);
}

/// The traced tasks by [rank][lane], in order of start; Plan order breaks ties, which is the order
/// of starting: a lane runs one after the other.
using Lanes = std::vector<std::array<std::vector<support::TracedTask>, doc::kLanes>>;
Lanes simulated_lanes(const doc::Plan& plan, const cost::CostModel& model) {
  Lanes lanes(static_cast<std::size_t>(plan.ranks));
  for (const support::TracedTask& t : support::trace_tasks(plan, model, kSteps)) {
    const doc::Task& task = plan.variant_of_step(t.step).tasks[t.task];
    lanes[static_cast<std::size_t>(t.rank)][static_cast<std::size_t>(task.resource)].push_back(t);
  }
  for (auto& rank : lanes)
    for (auto& lane : rank)
      std::stable_sort(lane.begin(), lane.end(),
                       [](const auto& a, const auto& b) { return a.start_s < b.start_s; });
  return lanes;
}

using support::Opening;

/// Empty where both agree, else the first difference. `all`: simulated_lanes() of the same.
std::string difference(const doc::Plan& plan, const cost::CostModel& model, const Lanes& all,
                       Opening opening = Opening::all_at_once) {
  const support::VirtualRun run(plan, model, kSteps, opening);
  if (!run.finished()) return "the runner did not finish";
  for (int r = 0; r < plan.ranks; ++r)
    for (std::size_t lane = 0; lane < doc::kLanes; ++lane) {
      const auto& simulated = all[static_cast<std::size_t>(r)][lane];
      const auto& ran = run.lanes(r)[lane];
      const auto place = [&] {
        return fmt::format("rank {}, lane {}", r, doc::kResourceNames[lane]);
      };
      if (simulated.size() != ran.size())
        return fmt::format("{}: simulated {} tasks, ran {}", place(), simulated.size(), ran.size());
      for (std::size_t i = 0; i < ran.size(); ++i) {
        // Of one Plan: the same task has the same name and bytes, which are told when they matter.
        if (simulated[i].step != ran[i].id.step || simulated[i].task != ran[i].id.task)
          return fmt::format("{}: simulated {}, ran {}", place(),
                             line_of(plan, simulated[i].step, simulated[i].task),
                             line_of(plan, ran[i].id.step, ran[i].id.task));
        if (std::abs(simulated[i].start_s - ran[i].start_s) > kNanosecond ||
            std::abs(simulated[i].end_s - ran[i].end_s) > kNanosecond)
          return fmt::format("{}: {}: simulated {} .. {} s, ran {} .. {} s", place(),
                             line_of(plan, ran[i].id.step, ran[i].id.task), simulated[i].start_s,
                             simulated[i].end_s, ran[i].start_s, ran[i].end_s);
      }
    }
  return "";
}

/// Names, parameter sets, bytes and durations of a rank's executed tasks in one steady step, as the
/// predicted Timeline has them and as a Recorder would write them.
std::multiset<std::string> predicted_events(const doc::Plan& plan, const doc::Workload& workload,
                                            const cost::CostModel& model, int rank) {
  std::multiset<std::string> lines;
  const doc::Timeline t = sim::predicted_timeline(plan, workload, model);
  bool preconditions_late = false;
  for (const doc::TaskGraph& g : plan.variants)
    for (const doc::Task& task : g.tasks)
      preconditions_late |=
          task.kind == doc::TaskKind::precondition && task.origin == doc::Origin::observed;
  for (const doc::Event& e : t.events) {
    // Observed tasks are others' to record: layers, factors, the optimizer and what it waits for
    // under a forward pass, the step's tail.
    const bool observed = e.kind == doc::TaskKind::forward || e.kind == doc::TaskKind::backward ||
                          e.kind == doc::TaskKind::factor || e.kind == doc::TaskKind::update ||
                          (e.kind == doc::TaskKind::precondition && preconditions_late) ||
                          (e.kind == doc::TaskKind::host && e.resource == doc::Resource::compute);
    if (e.rank != rank || e.step < 0 || observed) continue;
    std::string set;
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[static_cast<std::size_t>(e.set)])
        set += " " + t.parameter_names[static_cast<std::size_t>(p)];
    lines.insert(fmt::format("{} {}{}", t.names[static_cast<std::size_t>(e.name)],
                             std::max<std::int64_t>(0, e.bytes), set));
  }
  return lines;
}

std::multiset<std::string> recorded_events(const doc::Plan& plan, const cost::CostModel& model,
                                           int rank) {
  std::multiset<std::string> lines;
  const support::VirtualRun run(plan, model, 12);
  for (const auto& lane : run.lanes(rank))
    for (const support::RunTask& t : lane) {
      const doc::TaskGraph& graph = plan.variant_of_step(t.id.step);
      const doc::Task& task = graph.tasks[t.id.task];
      // The cycle that the predicted Timeline shows: its steps overlap, and eight settle first.
      const bool overlaps = !plan.variants.back().next_step.empty();
      const auto first = static_cast<std::int64_t>(plan.warm_up.size()) + (overlaps ? 8 : 0);
      const auto behind = first + static_cast<std::int64_t>(plan.cycle.size());
      if (t.id.step < first || t.id.step >= behind || t.end_s <= t.start_s ||
          task.origin == doc::Origin::observed)
        continue;
      std::string set;
      for (const std::int32_t p : gradients_of(plan, graph, task))
        set += " " + plan.gradient_names[static_cast<std::size_t>(p)];
      lines.insert(fmt::format("{} {}{}", title_of(plan, graph, task), task.bytes, set));
    }
  return lines;
}

TEST(Agreement, EveryStrategyIsSimulatedRunAndRehearsedAlike) {
  int agree = 0;
  std::set<std::string> met;
  for (const auto& [setting, strategy] : support::cases()) {
    met.insert(strategy);
    for (const int ranks : {1, 2, 3, 4})
      for (const bool training : {false, true}) {
        const doc::Cluster cluster = cluster_of(*setting, ranks);
        const auto plan = plan_of(strategy, *setting, cluster, ranks, training);
        if (!plan) continue;
        ++agree;
        const cost::CostModel model(cluster);
        const Lanes simulated = simulated_lanes(*plan, model);
        for (const Opening opening : {Opening::all_at_once, Opening::one_after_the_other}) {
          const std::string found = difference(*plan, model, simulated, opening);
          ASSERT_EQ(found, "") << setting->name << ", " << strategy << ", " << ranks << " ranks"
                               << (training ? ", as train runs it" : "")
                               << (opening == Opening::all_at_once ? "" : ", as rehearsed");
        }
      }
  }
  fmt::print("{} cases agree\n", agree);
  EXPECT_EQ(met.size(), support::strategies().size());  // in every build
  EXPECT_GE(agree, 500);
}

TEST(Agreement, EventsHaveTheSameNamesBytesAndParameters) {
  int agree = 0;
  for (const auto& [setting, strategy] : support::cases()) {
    const int ranks = 1 + agree % 4;
    const doc::Cluster cluster = cluster_of(*setting, ranks);
    const auto plan = plan_of(strategy, *setting, cluster, ranks, agree % 2 == 0);
    if (!plan) continue;
    ++agree;
    const cost::CostModel model(cluster);
    ASSERT_EQ(predicted_events(*plan, setting->workload, model, ranks - 1),
              recorded_events(*plan, model, ranks - 1))
        << setting->name << ", " << strategy << ", " << ranks << " ranks";
  }
  fmt::print("{} Timelines agree\n", agree);
}

TEST(Agreement, OverRandomPlansWithGroupsAndWarmUp) {
  constexpr std::uint64_t kCases = 500;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    support::Random random(seed);
    doc::Plan plan = support::random_plan(random);
    const doc::Cluster cluster = support::random_cluster(random);
    const cost::CostModel model(cluster);
    ASSERT_EQ(difference(plan, model, simulated_lanes(plan, model)), "") << "seed " << seed;
  }
  fmt::print("{} random plans agree\n", kCases);
}

}  // namespace
}  // namespace linerate
