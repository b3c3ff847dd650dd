#include <fmt/format.h>
#include <gmock/gmock.h>

#include "agreement/cases.hpp"
#include "linerate/sim/simulate.hpp"
#include "plan/planned.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using support::planned;
using support::step_s;

/// Gradients of 8 B at 4 and 10 s; 1 s and 0.25 s a byte.
const doc::Workload kTwo = support::workload_at({4, 10}, {8, 8});
const doc::Cluster kCluster = support::two_rank_cluster(1, 0.25);

TEST(Simulate, TakesAsLongAsWorkedOutByHand) {
  const doc::Workload one = support::workload_at({4}, {8}),
                      early = support::workload_at({1, 2}, {8, 8});
  struct Worked {
    const char* strategy;
    const doc::Workload& workload;
    double step_s;
    int ranks = 2;
  };
  for (const auto& [strategy, workload, expected_s, ranks] :
       {// Each exchange takes 1 + 2 = 3 s on the same link: the first runs in 4 .. 7 s, hidden
        // under backward, the second in 10 .. 13 s. One after the other would be 16 s.
        Worked{"ddp(first=8B, bucket=8B)", kTwo, 13},
        {"bulk", kTwo, 10 + 1 + 4},
        {"ddp", kTwo, 10, 1},  // one rank exchanges nothing
                               // 8 B at 4 B/s to encode (2 s), 4 B on the wire (1 + 1 s), 8 B/s to
                               // decode (1 s), behind the gradient at 4 s.
        {"ddp+codec(ratio=2, encode=4B/s, decode=8B/s)", one, 4 + 2 + 2 + 1},
        // 8 B / 2 = 4 B a rank. On n ranks the total is 4 n, of which each link carries (n-1)/n:
        // (n-1) (alpha + 4 beta) with alpha 0.5 and beta 0.25; decode n times 1 s.
        {"ddp+codec(ratio=2, decode=8B/s, exchange=gather)", one, 4 + 1.5 + 2},
        {"ddp+codec(ratio=2, decode=8B/s, exchange=gather)", one, 4 + 3 * 1.5 + 4, 4},
        {"ddp+codec(ratio=2, decode=8B/s, exchange=gather)", one, 4 + 7 * 1.5 + 8, 8},
        // Each encode takes 2 s: on its own resource, or on compute, where the first one pushes the
        // second gradient to 12 s.
        {"ddp(first=8B, bucket=8B)+codec(ratio=2, encode=4B/s)", kTwo, 10 + 2 + 2},
        {"ddp(first=8B, bucket=8B)+codec(ratio=2, encode=4B/s, on=compute)", kTwo, 12 + 2 + 2},
        // Both gradients leave at the tick at 5 s in one buffer of 16 B. By arrival neither 5 s nor
        // the threshold is reached before the end of backward. A buffer may hold one of them.
        {"horovod(cycle=5s, timer=clock)", early, 5 + 1 + 4},
        {"horovod(cycle=5s)", early, 2 + 1 + 4},
        {"horovod(cycle=5s, timer=clock, threshold=8B)", early, 5 + 3 + 3}})
    EXPECT_DOUBLE_EQ(step_s(strategy, workload, kCluster, ranks), expected_s) << strategy;
}

TEST(Simulate, StepIsTheOneRankStepPlusWhatIsExposed) {
  doc::Workload w = kTwo;
  w.forward_s = 5;
  w.update_s = 1;
  w.tail_s = 2;
  w.step_s = 18.5;  // half a second more than the parts
  EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, kCluster), 18.5 + 3);
}

TEST(Simulate, TensorsAddToTheMessagesThatTheyTravelIn) {
  // As above; each of the two gradients half a second more.
  doc::Cluster c = kCluster;
  c.tensor_s = 0.5;
  EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", kTwo, c), 13.5);
  EXPECT_DOUBLE_EQ(step_s("bulk", kTwo, c), 10 + 1 + 4 + 2 * 0.5);
  // A payload that stands for a bucket carries the bucket's tensors.
  EXPECT_DOUBLE_EQ(step_s("bulk(wire=fp16)", kTwo, c), 10 + 1 + 2 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(step_s("bulk", kTwo, c, 1), 10);
}

TEST(Simulate, MgWfbpGreedyOfTheUnitExample) {
  // r = 1 2 3 7, p = 3 1 1 1, T = 3 + S (1 B here: 0.25 s a byte and 4 B a unit): {1,2,3}{4}.
  const doc::Workload w = support::workload_at({1, 2, 3, 7}, {12, 4, 4, 4});
  const doc::Cluster c = support::two_rank_cluster(3, 0.25);
  EXPECT_DOUBLE_EQ(step_s("mg-wfbp", w, c), 15);
  EXPECT_DOUBLE_EQ(step_s("optimal", w, c), 13);
}

TEST(Simulate, CycleOfVariantsIsAveraged) {
  const auto steady = [](const char* strategy) {
    return planned(strategy, kTwo, kCluster, 2, {.first_step = false});
  };
  doc::Plan plan = steady("ddp(first=8B, bucket=8B)");       // 13 s
  plan.variants.push_back(steady("bulk").variants.front());  // 15 s
  plan.cycle = {0, 0, 1};
  EXPECT_DOUBLE_EQ(step_s(plan, kCluster), (13 + 13 + 15) / 3.0);
}

TEST(Simulate, IntervalComesFromTheFitAlone) {
  doc::Cluster c = kCluster;
  EXPECT_FALSE(simulate(planned("bulk", kTwo, c), cost::CostModel(c)).low_s.has_value());
  doc::CollectiveCost fit;
  fit.ranks = 2;
  fit.segments = {{1, 1000, 1, 0.25, 0.9, 1.2}};
  c.collectives = {fit};
  // T(16) = 5 within 4.5 .. 6, all of it exposed.
  const SimResult result = simulate(planned("bulk", kTwo, c), cost::CostModel(c));
  ASSERT_TRUE(result.low_s.has_value());
  EXPECT_DOUBLE_EQ(result.step_s, 15);
  EXPECT_DOUBLE_EQ(*result.low_s, 14.5);
  EXPECT_DOUBLE_EQ(*result.high_s, 16);
}

TEST(Simulate, NoStrategyBeatsTheOptimumWithoutCodecOrSplit) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  for (const double bandwidth : {1e8, 1e9, 1e10}) {
    const doc::Cluster c = support::two_rank_cluster(1e-4, 1 / bandwidth);
    const double best = step_s("optimal", w, c);
    for (const char* other : {"bulk", "ddp", "horovod", "horovod(timer=clock)", "mg-wfbp"})
      EXPECT_LE(best, step_s(other, w, c) * (1 + 1e-12)) << other;
  }
}

TEST(Simulate, ACollectiveStartsItsDelayAfterItIsReady) {
  // Gradients ready at 4 and 5, transfers of 2 s, delay 0.5 s: 4.5 .. 6.5, and the second one, its
  // delay long over, behind it until 8.5.
  const doc::Workload w = support::workload_at({4, 5}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  c.start_delay_s = 0.5;
  const doc::Plan plan = planned("ddp(first=8B, bucket=8B)", w, c);
  EXPECT_DOUBLE_EQ(step_s(plan, c), 8.5);
  c.contention = doc::Contention{1, 1 + 1e-15};  // by events
  EXPECT_NEAR(step_s(plan, c), 8.5, 1e-9);
  c.rank_speeds = {{1, 1, 1}};  // rank 1 comes a second later: everything moves by it
  c.contention.reset();
  EXPECT_DOUBLE_EQ(step_s(plan, c), 9.5);
}

// Models that are trained in turn within a step: each as if it were trained by itself.

/// Backward of `second` begins `gap_s` after the last gradient of `first`.
doc::Workload in_turn(const doc::Workload& first, double gap_s, const doc::Workload& second) {
  doc::Workload both = first;
  for (doc::Gradient g : second.gradients) {
    g.turn = 1;
    g.ready_s += first.backward_s + gap_s;
    both.gradients.push_back(g);
  }
  both.backward_s = both.gradients.back().ready_s;
  return both;
}

TEST(ModelsInTurn, TakeAsLongAsEachByItself) {
  doc::Workload a = support::workload_of(support::resnet50_parameters(), 1e-4);
  const doc::Workload b = support::workload_of({5'000'000, 100, 2'000'000, 70'000, 300'000}, 2e-3);
  a.forward_s = 8e-3;
  constexpr double kGap_s = 5e-3;
  const doc::Workload both = in_turn(a, kGap_s, b);
  ASSERT_EQ(both.turns(), 2);
  const doc::Cluster cluster = support::cluster_of(support::Setting{}, 2);
  int held = 0, refused = 0;
  for (const std::string& strategy : support::strategies()) {
    if (strategy.starts_with("horovod")) continue;  // its timer goes on through the step
    SCOPED_TRACE(strategy);
    const doc::Strategy parsed = doc::parse_strategy(strategy);
    const bool plain = parsed.exchange.name != "dear" &&
                       (parsed.extras.empty() || parsed.extras.front().name == "codec");
    if (!plain) {
      EXPECT_THROW(support::planned(strategy, both, cluster), UsageError);
      ++refused;
      continue;
    }
    // What decodes on the device does so among what comes next, which may wait a little for it.
    const bool on_device = strategy.find("on=compute") != std::string::npos;
    const double apart =
        support::step_s(strategy, a, cluster) + kGap_s + support::step_s(strategy, b, cluster);
    const double together = support::step_s(strategy, both, cluster);
    if (on_device)
      EXPECT_LE(together, apart * 1.001);
    else
      EXPECT_NEAR(together, apart, 1e-9);
    ++held;
  }
  fmt::print("{} strategies hold, {} refuse\n", held, refused);
  EXPECT_GE(held, 10);
}

}  // namespace
}  // namespace linerate::sim
