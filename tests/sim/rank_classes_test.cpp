// Ranks of different speed in classes against the same step written out rank by rank.
#include "linerate/sim/rank_classes.hpp"

#include <gmock/gmock.h>

#include "linerate/core/rng.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

// Every task that is no collective becomes one per rank, its duration scaled; collectives wait for
// all ranks' predecessors. Delays become host tasks in front of the first computation.
doc::TaskGraph written_out(const doc::TaskGraph& graph, const std::vector<doc::RankSpeed>& speeds) {
  doc::TaskGraph out;
  std::vector<std::vector<std::uint32_t>> copies;
  std::vector<std::uint32_t> delays;
  for (const doc::RankSpeed& s : speeds) {
    doc::Task delay;
    delay.rank = s.rank;
    delay.seconds = s.delay_s;
    delays.push_back(out.add(delay));
  }
  bool first_compute = true;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    const doc::Task& task = graph.tasks[i];
    std::vector<std::uint32_t>& mine = copies.emplace_back();
    const bool joint = doc::is_communication(task.kind);
    for (const doc::RankSpeed& s : speeds) {
      if (!joint || s.rank == 0) {
        doc::Task copy = task;
        if (!joint) copy.rank = s.rank, copy.seconds *= s.compute_factor;
        mine.push_back(out.add(copy));
        if (first_compute && task.resource == doc::Resource::compute)
          out.add_predecessor_to_last(delays[static_cast<std::size_t>(s.rank)]);
      }
      for (std::uint32_t p = graph.pred_begin[i]; p < graph.pred_begin[i + 1]; ++p) {
        const auto& before = copies[graph.preds[p]];
        out.add_predecessor_to_last(before.size() == 1 ? before.front()
                                                       : before[static_cast<std::size_t>(s.rank)]);
      }
    }
    if (task.resource == doc::Resource::compute) first_compute = false;
  }
  return out;
}

class RankClassesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RankClassesTest, EqualTheStepWrittenOutRankByRank) {
  constexpr int kRanks = 5;
  doc::Workload w = testing::workload_of(testing::resnet50_parameters(), 4e-4);
  w.forward_s = 0.02;
  w.update_s = 0.01;
  for (const bool contended : {false, true}) {
    doc::Cluster c = testing::two_rank_cluster(1e-4, 1e-9);
    if (contended) c.contention = doc::Contention{1.3, 1.6};
    std::vector<doc::RankSpeed> speeds;
    for (int r = 0; r < kRanks; ++r)
      speeds.push_back({r, r == 2 ? 1.4 : 1 + 0.1 * random_unit(7, static_cast<std::uint64_t>(r)),
                        r == 3 ? 0.015 : 0});
    const doc::Plan plan =
        plan::make_plan(w, c, doc::parse_strategy(GetParam()), kRanks, {std::nullopt, false});
    doc::Plan expanded = plan;
    expanded.variants = {written_out(plan.variants.front(), speeds)};
    const double expected = simulate(expanded, cost::CostModel(c)).step_s;
    c.rank_speeds = speeds;
    EXPECT_NEAR(simulate(plan, cost::CostModel(c)).step_s, expected, 1e-9 * expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, RankClassesTest,
                         ::testing::Values("bulk", "ddp", "optimal",
                                           "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s)"));

TEST(RankClasses, EqualRanksShareAClass) {
  doc::Cluster c;
  c.rank_speeds = {{1, 1.5, 0}, {3, 1.5, 0}, {2, 1, 0.01}};
  const RankClasses classes = classes_of(doc::TaskGraph{}, c, 6);
  EXPECT_EQ(classes.count(), 3);
  EXPECT_THAT(classes.class_of, ::testing::ElementsAre(0, 1, 2, 1, 0, 0));
}

TEST(RankClasses, AStragglerDelaysEverybody) {
  // Backward 10 s on one rank, 15 s on the slow one; the exchange of 5 s begins at 15.
  doc::Workload w = testing::workload_at({4, 10}, {8, 8});
  doc::Cluster c = testing::two_rank_cluster(1, 0.25);
  c.rank_speeds = {{1, 1.5, 0}};
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("bulk"), 2);
  EXPECT_DOUBLE_EQ(simulate(plan, cost::CostModel(c)).step_s, 20);
}

}  // namespace
}  // namespace linerate::sim
