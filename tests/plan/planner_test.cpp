#include "linerate/plan/planner.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/plan/exchange.hpp"
#include "plan/planned.hpp"
#include "support/message_of.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using doc::TaskKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const doc::Cluster kCluster = support::two_rank_cluster(1e-4, 1e-9);

doc::Plan planned(const std::string& strategy, const doc::Workload& w) {
  return support::planned(strategy, w, kCluster);
}

std::vector<TaskKind> kinds(const doc::TaskGraph& graph) {
  std::vector<TaskKind> all;
  for (const doc::Task& t : graph.tasks) all.push_back(t.kind);
  return all;
}

std::vector<std::int32_t> bucket_ends(const std::string& strategy, const doc::Workload& w) {
  std::vector<std::int32_t> ends;
  const doc::Plan plan = planned(strategy, w);  // named: the loop holds a reference into it
  for (const doc::Payload& bucket : plan.variants.back().buckets()) ends.push_back(bucket.end);
  return ends;
}

/// DataParallel knows ready times since the first gradient, not since the start of backward.
TEST(Planner, BucketsDependOnDifferencesOfReadyTimesOnly) {
  const doc::Workload since_backward =
      support::workload_of(support::resnet50_parameters(), 0x1p-11);
  doc::Workload since_first = since_backward;  // all times are multiples of 2^-11: no rounding
  for (doc::Gradient& g : since_first.gradients)
    g.ready_s -= since_backward.gradients.front().ready_s;
  for (const char* strategy : {"bulk", "ddp", "mg-wfbp", "optimal"})
    EXPECT_EQ(bucket_ends(strategy, since_first), bucket_ends(strategy, since_backward))
        << strategy;
}

/// One series makes both, in any order.
TEST(Planner, SeveralRanksComputeLongerThanOne) {
  doc::Workload w = support::workload_at({1, 2}, {8, 8});
  const Planner planner(doc::parse_strategy("ddp"), kCluster);
  const cost::CostModel cost(kCluster);
  const double alone_s = support::compute_s(planner.plan(w, cost, 2, {}));
  w.several_ranks = doc::SeveralRanks{1.5};
  PlanSeries series(planner, w, {});
  for (const int ranks : {2, 1, 2, 4})
    EXPECT_NEAR(support::compute_s(series.plan(cost, ranks)), (ranks == 1 ? 1 : 1.5) * alone_s,
                1e-12)
        << ranks;
}

/// An all-reduce of 16 bytes takes 100.016 us here, and one of 8 bytes 100.008 us.
TEST(Planner, RanksThatCommunicateForAShorterTimeLoseLess) {
  doc::Workload w = support::workload_at({1, 2}, {8, 8});
  const auto compute_s = [&](const char* strategy) {
    return support::compute_s(planned(strategy, w));
  };
  const double alone_s = compute_s("bulk"), message_s = 1e-4 + 16e-9;
  for (const double recorded_s : {message_s / 2, message_s, 2 * message_s, 4 * message_s}) {
    w.several_ranks = doc::SeveralRanks{1.5, recorded_s};
    const double share = std::min(1.0, message_s / recorded_s);
    EXPECT_NEAR(compute_s("bulk"), (1 + 0.5 * share) * alone_s, 1e-9) << recorded_s;
    // Two messages take about twice as long.
    EXPECT_NEAR(compute_s("wfbp"), (1 + 0.5 * std::min(1.0, 2 * share)) * alone_s, 1e-3 * alone_s)
        << recorded_s;
  }
  w.several_ranks = doc::SeveralRanks{1.5, 0};
  EXPECT_NEAR(compute_s("bulk"), 1.5 * alone_s, 1e-12);
}

TEST(Planner, WireTypeChangesTheBytesNotTheBucket) {
  const doc::Plan plan = planned("bulk(wire=bf16)", support::workload_at({1, 2}, {8, 8}));
  const doc::TaskGraph& g = plan.variants.back();
  // Between the casts: forward, two backward tasks, encode, the all-reduce.
  ASSERT_THAT(kinds(g), ElementsAre(TaskKind::forward, TaskKind::backward, TaskKind::backward,
                                    TaskKind::encode, TaskKind::all_reduce, TaskKind::decode,
                                    TaskKind::update));
  EXPECT_EQ(g.tasks[4].bytes, 8);
  EXPECT_EQ(g.tasks[4].wire, DType::bf16);
  EXPECT_EQ(g.buckets()[0].dtype, DType::f32);
  EXPECT_EQ(doc::to_text(plan.operations[to_index(g.tasks[3].operation)]), "cast(to=bf16)");
}

TEST(Planner, SamePlanForTheSameInput) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters());
  for (const auto& line : exchanges().lines()) {
    EXPECT_EQ(planned(line.name, w).hash(), planned(line.name, w).hash()) << line.name;
    EXPECT_EQ(doc::to_json(planned(line.name, w)), doc::to_json(planned(line.name, w)));
  }
}

TEST(Planner, UnknownNamesAndOptionsSuggestTheNearest) {
  const auto error = [](const char* strategy) {
    return support::message_of([&] { return planned(strategy, support::workload_at({1}, {4})); });
  };
  for (const auto& [strategy, said] : {std::pair{"ddpp", "did you mean \"ddp\"?"},
                                       {"ddp(buket=25MiB)", "did you mean \"bucket\"?"},
                                       {"ddp(bucket=25)", "ddp: bucket: "},
                                       {"ddp(wire=fp8)", "fp16"},
                                       {"ddp+codex(ratio=8)", "did you mean \"codec\"?"},
                                       {"ddp+codec(ratio=0.5)", "at least 1"}})
    EXPECT_THAT(error(strategy), HasSubstr(said)) << strategy;
}

TEST(Planner, WorkloadWithoutGradientsIsRefused) {
  EXPECT_THROW(planned("ddp", doc::Workload{}), InputError);
}

}  // namespace
}  // namespace linerate::plan
