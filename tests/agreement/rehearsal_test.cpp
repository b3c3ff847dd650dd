// Rehearsal keeps to what the simulator says: over every strategy of the registry, ranks that are
// threads run the tasks of a steady step in the same order in each lane, under the same names, with
// the same bytes and parameters. Durations are a microsecond each: what is held is what happens,
// not when.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "agreement/cases.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate {
namespace {

using support::cluster_of;
using support::plan_of;
using support::Setting;

using RankLanes = std::array<std::vector<std::string>, doc::kResourceNames.size()>;

/// A line an event of a rank in a step, in order of start.
RankLanes lanes_of(const doc::Timeline& t, int rank, int step) {
  std::vector<doc::Event> events;
  std::copy_if(t.events.begin(), t.events.end(), std::back_inserter(events),
               [&](const doc::Event& e) { return e.rank == rank && e.step == step; });
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  RankLanes lanes;
  for (const doc::Event& e : events) {
    std::string line = fmt::format("{} \"{}\" {} bytes", name_of(e.kind),
                                   e.name < 0 ? "" : t.names[static_cast<std::size_t>(e.name)],
                                   std::max<std::int64_t>(0, e.bytes));
    std::vector<std::string> set;
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[static_cast<std::size_t>(e.set)])
        set.push_back(t.parameter_names[static_cast<std::size_t>(p)]);
    std::sort(set.begin(), set.end());
    lanes[static_cast<std::size_t>(e.resource)].push_back(
        fmt::format("{}: {}", line, fmt::join(set, " ")));
  }
  return lanes;
}

doc::Plan in_microseconds(doc::Plan plan) {
  for (doc::TaskGraph& graph : plan.variants)
    for (doc::Task& task : graph.tasks)
      if (task.seconds > 0) task.seconds = 1e-6;
  return plan;
}

doc::Timeline rehearsed(const doc::Plan& plan, int steps) {
  doc::Timeline timeline;
  const auto shared = std::make_shared<const doc::Plan>(plan);
  comm::run_ranks(plan.ranks, [&](comm::Communicator& communicator) {
    doc::Timeline mine = exec::rehearse(communicator, shared, {.steps = steps, .warm_up = 1});
    if (communicator.rank() == 0) timeline = std::move(mine);
  });
  return timeline;
}

TEST(Rehearsal, RunsWhatTheSimulatorRunsInItsOrder) {
  int agree = 0;
  for (const auto& [setting, strategy] : support::cases()) {
    if (setting->unequal) continue;  // ranks compute alike in a rehearsal
    const int ranks = 2 + agree % 3;
    const doc::Cluster cluster = cluster_of(*setting, ranks);
    const auto planned = plan_of(strategy, *setting, cluster, ranks, agree % 2 == 0);
    if (!planned) continue;
    ++agree;
    const doc::Plan plan = in_microseconds(*planned);
    const doc::Timeline measured = rehearsed(plan, 2);
    const doc::Timeline predicted =
        sim::predicted_timeline(plan, setting->workload, cost::CostModel(cluster));
    ASSERT_EQ(measured.steps.size(), static_cast<std::size_t>(2 * ranks));
    const int cycle = static_cast<int>(plan.cycle.size());
    for (int rank = 0; rank < ranks; ++rank)
      for (int step = 0; step < 2; ++step)  // after one that warms up
        ASSERT_EQ(lanes_of(measured, rank, step), lanes_of(predicted, rank, (step + 1) % cycle))
            << setting->name << ", " << strategy << ", rank " << rank << " of " << ranks;
    const compare::Comparison joined = compare::compare(predicted, measured, {.warm_up = 0});
    ASSERT_TRUE(joined.only_predicted.empty() && joined.only_measured.empty())
        << setting->name << ", " << strategy;
    ASSERT_TRUE(joined.notes.empty()) << joined.notes.front();
  }
  fmt::print("{} rehearsals agree\n", agree);
  EXPECT_GE(agree, 100);
}

TEST(Rehearsal, SixteenRanks) {
  const Setting setting = support::settings()[2];
  for (const std::string strategy : {"ddp(first=64B, bucket=4KiB)", "dear(bucket=4KiB)"}) {
    const doc::Cluster cluster = cluster_of(setting, 16);
    const doc::Plan plan = in_microseconds(*plan_of(strategy, setting, cluster, 16, false));
    const doc::Timeline measured = rehearsed(plan, 1);
    const doc::Timeline predicted =
        sim::predicted_timeline(plan, setting.workload, cost::CostModel(cluster));
    EXPECT_EQ(measured.steps.size(), 16u);
    for (int rank = 0; rank < 16; ++rank)
      EXPECT_EQ(lanes_of(measured, rank, 0), lanes_of(predicted, rank, 0)) << strategy;
  }
}

}  // namespace
}  // namespace linerate
