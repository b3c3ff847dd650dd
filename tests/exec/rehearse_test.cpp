#include "linerate/exec/rehearse.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "exec/sample_plans.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/exec/coded_bucket.hpp"
#include "linerate/plan/planner.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::exec {
namespace {

using doc::TaskKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::shared_ptr<const doc::Plan> planned(const doc::Workload& workload, const char* strategy,
                                         int ranks) {
  return std::make_shared<const doc::Plan>(
      plan::make_plan(workload, linerate::support::two_rank_cluster(1e-4, 1e-9),
                      doc::parse_strategy(strategy), ranks));
}

doc::Timeline rehearsed(const std::shared_ptr<const doc::Plan>& plan,
                        const RehearsalOptions& options) {
  doc::Timeline timeline;
  comm::run_ranks(plan->ranks, [&](comm::Communicator& communicator) {
    doc::Timeline mine = rehearse(communicator, plan, options);
    if (communicator.rank() == 0)
      timeline = std::move(mine);
    else
      EXPECT_TRUE(mine.events.empty());
  });
  return timeline;
}

TEST(Rehearse, ComputationFollowsWithoutAGapHoweverLateThreadsWakeUp) {
  // 200 gradients, half a millisecond apart: a gap at each would show in the sum.
  const auto plan =
      planned(linerate::support::workload_of(std::vector<std::int64_t>(200, 3), 5e-4), "bulk", 2);
  const doc::Timeline t = rehearsed(plan, {.steps = 2, .warm_up = 1});
  for (int rank = 0; rank < 2; ++rank) {
    std::int64_t before = -1;
    int backward = 0;
    for (const doc::Event& e : t.events) {
      if (e.rank != rank || e.step != 1 || e.kind != TaskKind::backward) continue;
      if (before >= 0) {
        EXPECT_EQ(e.start_ns, before);
      }
      EXPECT_EQ(e.end_ns - e.start_ns, 500'000);
      before = e.end_ns;
      ++backward;
    }
    EXPECT_EQ(backward, 200);
  }
}

TEST(Rehearse, StepsFollowEachOtherAndWarmUpIsLeftOut) {
  const auto plan = planned(linerate::support::workload_of({7, 5, 3}, 1e-4), "dear", 2);
  const doc::Timeline t = rehearsed(plan, {.steps = 4, .warm_up = 2});
  EXPECT_EQ(t.mode, "rehearsed");
  EXPECT_EQ(t.computation_slowed, false);
  EXPECT_DOUBLE_EQ(t.one_rank_step_s.value(), computation_s(*plan));
  EXPECT_DOUBLE_EQ(computation_s(*plan), 3e-4);
  std::vector<doc::Step> mine;
  for (const doc::Step& s : t.steps)
    if (s.rank == 0) mine.push_back(s);
  ASSERT_EQ(mine.size(), 4u);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].index, static_cast<int>(i));
    EXPECT_EQ(mine[i].variant, "steady");
    if (i > 0) {
      EXPECT_EQ(mine[i].start_ns, mine[i - 1].end_ns);
    }
  }
  for (const doc::Event& e : t.events)
    EXPECT_TRUE(e.rank != 0 || (e.step >= 0 && e.step < 4) ||
                (e.step == -1 && e.end_ns > mine[0].start_ns));
}

TEST(Rehearse, AnExchangeThatNothingHidesLengthensTheStep) {
  // Codec waits: 2 ms to encode and as much to decode what one gradient leaves.
  doc::Workload w = linerate::support::workload_at({1e-3}, {4'000'000});
  const doc::Timeline t = rehearsed(
      planned(w, "bulk+codec(ratio=4, encode=2GB/s, decode=2GB/s)", 2), {.steps = 2, .warm_up = 1});
  int coded = 0;
  for (const doc::Event& e : t.events)
    if (e.kind == TaskKind::encode || e.kind == TaskKind::decode) {
      EXPECT_EQ(e.end_ns - e.start_ns, 2'000'000);
      ++coded;
    }
  EXPECT_EQ(coded, 2 * 2 * 2);  // ranks, steps, both
  for (const doc::Step& s : t.steps) EXPECT_GE(s.end_ns - s.start_ns, 5'000'000);
}

TEST(Rehearse, APlanForOtherRanksIsRefusedOnEveryRank) {
  const auto plan = planned(linerate::support::workload_of({7}), "ddp", 3);
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    EXPECT_THAT([&] { rehearse(communicator, plan, {.steps = 1}); },
                ThrowsMessage<UsageError>(HasSubstr("for 3 ranks, the communicator has 2")));
  });
}

TEST(Rehearse, ComputationOutsideItsLaneIsRefused) {
  auto plan = plan_of(1, {exchange_graph("steady", {1})}, 1);
  plan->variants[0].add({.kind = TaskKind::host, .origin = doc::Origin::observed});
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    EXPECT_THROW(rehearse(communicator, plan, {.steps = 1}), UsageError);
  });
}

TEST(PayloadArena, IsAsLargeAsTheLargestPayload) {
  // 400 buckets of 40 kB, all in flight at once on a slow network, and one of 80 kB.
  std::vector<std::int64_t> elements(400, 10'000);
  elements.push_back(20'000);
  const auto plan = planned(linerate::support::workload_of(elements), "dear(bucket=4B)", 4);
  PayloadArena arena(plan);
  EXPECT_EQ(arena.bytes(), 81'920);  // 80 kB in whole pages of 4 KiB
  for (const doc::TaskGraph& graph : plan->variants)
    for (std::int32_t p = 0; p < static_cast<std::int32_t>(graph.payloads.size()); ++p) {
      const comm::Buffer b = arena.buffer(graph, p);
      EXPECT_EQ(b.data, arena.buffer(graph, 0).data);
      EXPECT_EQ(b.count.value, graph.payloads[static_cast<std::size_t>(p)].padded);
    }
  const auto first = arena.buffer(plan->variants[0], 0);
  const auto* bytes = static_cast<const std::byte*>(first.data);
  EXPECT_TRUE(
      std::all_of(bytes, bytes + arena.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(PayloadArena, AnAllToAllHasItsResultElsewhere) {
  auto plan = plan_of(2, {exchange_graph("steady", {4, 4})}, 8);
  doc::TaskGraph& graph = plan->variants[0];
  graph.add({.kind = TaskKind::all_to_all,
             .resource = doc::Resource::network,
             .subject = doc::Subject::payloads,
             .first = 0,
             .last = 1,
             .bytes = 16});
  PayloadArena arena(plan);
  EXPECT_NE(arena.buffer(graph, 0).data, arena.buffer(graph, 1).data);
}

TEST(PayloadArena, UnequalPartsAddUpToTheWhole) {
  auto plan = plan_of(3, {exchange_graph("steady", {8})}, 8);
  PayloadArena arena(plan);
  EXPECT_THAT(arena.counts(plan->variants[0], plan->variants[0].tasks.back()),
              ElementsAre(3, 3, 2));
}

/// Every compressor, by every exchange, and a cast: encodes and decodes really run, on as many
/// ranks as there are, and in each round.
TEST(CompressionLoad, RunsEveryCompressor) {
  const doc::Workload w = [] {
    doc::Workload matrices = linerate::support::workload_of({64 * 64, 128 * 32}, 1e-4);
    for (doc::Gradient& g : matrices.gradients) g.rows = 64;
    return matrices;
  }();
  std::vector<std::string> strategies = {"ddp(wire=bf16)"};
  for (const std::string& name : compress::compressors().names()) {
    const bool fits_both = compress::fits_two_phase(*compress::make_compressor({name, {}}));
    strategies.push_back("ddp+" + name + (fits_both ? "(exchange=gather)" : ""));
    if (fits_both) strategies.push_back("ddp+" + name + "(exchange=two-phase)");
  }
  for (const std::string& strategy : strategies) {
    const doc::Timeline t =
        rehearsed(planned(w, strategy.c_str(), 3), {.steps = 2, .warm_up = 1, .real_codecs = true});
    const auto of = [&](TaskKind kind) {
      return std::ranges::count(t.events, kind, &doc::Event::kind);
    };
    EXPECT_GE(of(TaskKind::encode), of(TaskKind::decode)) << strategy;
    EXPECT_GT(of(TaskKind::decode), 0) << strategy;
    EXPECT_EQ(of(TaskKind::decode) % 6, 0) << strategy;  // ranks, steps
  }
}

TEST(CastOperation, NumbersAloneCannotRun) {
  const doc::Workload w = linerate::support::workload_of({1000});
  EXPECT_THAT([&] { CastOperation cast(*planned(w, "ddp+codec(ratio=8)", 2)); },
              ThrowsMessage<UsageError>(HasSubstr("given only by its numbers")));
  doc::Workload wide = w;
  wide.gradients[0].dtype = DType::f64;
  EXPECT_THROW(CastOperation cast(*planned(wide, "ddp(wire=fp16)", 2)), UsageError);
  EXPECT_NO_THROW(CastOperation cast(*planned(w, "ddp", 2)));  // nothing to cast
}

}  // namespace
}  // namespace linerate::exec
