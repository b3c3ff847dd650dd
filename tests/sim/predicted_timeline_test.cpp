#include "linerate/sim/predicted_timeline.hpp"

#include <gmock/gmock.h>

#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using doc::TaskKind;
using ::testing::ElementsAre;

doc::Workload two_layers() {
  doc::Workload w = testing::workload_at({3, 4, 10}, {4, 4, 8});
  w.layers = {{"a", "linear", 2.0, {}, 0}, {"b", "linear", 3.0, {}, 0}};
  w.gradients[0].layer = w.gradients[1].layer = 1;
  w.gradients[2].layer = 0;
  w.forward_s = 5;
  return w;
}

std::vector<doc::Event> of_kind(const doc::Timeline& t, TaskKind kind) {
  std::vector<doc::Event> found;
  for (const doc::Event& e : t.events)
    if (e.kind == kind && e.rank == 0) found.push_back(e);
  return found;
}

doc::Timeline timeline(const char* strategy) {
  const doc::Cluster c = testing::two_rank_cluster(1, 0.25);
  const doc::Workload w = two_layers();
  return predicted_timeline(plan::make_plan(w, c, doc::parse_strategy(strategy), 2), w,
                            cost::CostModel(c));
}

TEST(PredictedTimeline, OneBackwardEventPerLayerOverItsOwnParameters) {
  const doc::Timeline t = timeline("ddp(first=8B, bucket=8B)");
  const auto backward = of_kind(t, TaskKind::backward);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(t.names[static_cast<std::size_t>(backward[0].name)], "b");
  EXPECT_THAT(t.parameter_sets[static_cast<std::size_t>(backward[0].set)], ElementsAre(0, 1));
  EXPECT_EQ(backward[0].start_ns, 5'000'000'000);
  EXPECT_EQ(backward[0].end_ns, 9'000'000'000);
}

TEST(PredictedTimeline, ExchangeStatesReadyStartAndBytes) {
  // Buckets {0, 1} ready at 5 + 4, in transfer 9 .. 12, and {2} ready at 15.
  const auto exchanges = of_kind(timeline("ddp(first=8B, bucket=8B)"), TaskKind::all_reduce);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0].ready_ns, 9'000'000'000);
  EXPECT_EQ(exchanges[0].end_ns, 12'000'000'000);
  EXPECT_EQ(exchanges[0].bytes, 8);
  EXPECT_EQ(exchanges[1].start_ns, 15'000'000'000);
}

TEST(PredictedTimeline, EveryRankHasItsEventsAndSteps) {
  const doc::Timeline t = timeline("ddp");
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.mode, "predicted");
  EXPECT_DOUBLE_EQ(t.one_rank_step_s.value(), 15);
}

TEST(PredictedTimeline, SameBytesForTheSameInput) {
  for (const char* strategy : {"ddp", "dear", "optimal"})
    EXPECT_EQ(doc::to_json(timeline(strategy)), doc::to_json(timeline(strategy)));
}

}  // namespace
}  // namespace linerate::sim
