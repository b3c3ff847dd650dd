#include "linerate/sim/simulator.hpp"

#include <gmock/gmock.h>

#include "plan/planned.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using support::planned;
using support::step_s;

const std::vector<std::string> kStrategies = {
    "bulk",
    "ddp",
    "horovod",
    "horovod(timer=clock)",
    "mg-wfbp",
    "optimal",
    "dear",
    "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s)",
    "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s, on=compute, exchange=gather)"};

// Backward lasts 10 s and its first gradient is there at 4 s; each exchange takes 2 s, the second
// one when nothing is left to compute. Bulk sends 3 s behind all: nothing overlaps, whatever
// happens.
TEST(Fluid, OnlyWhatOverlapsIsSlowed) {
  const doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.125);
  struct Case {
    std::optional<doc::Contention> contention;
    double ddp_s;
  };
  for (const auto& [contention, ddp_s] :
       {Case{{}, 12},
        // Both at half speed: the first exchange takes 4 s (4 .. 8), in which compute does 2 of its
        // 6; the rest runs alone until 12.
        {doc::Contention{2, 2}, 14},
        // 10 s (4 .. 14), in which compute does 10 / 3 of its 6.
        {doc::Contention{3, 5}, 14 + (6 - 10. / 3) + 2},
        // A message takes half a second of the computation that overlaps it.
        {doc::Contention{1, 1, 1, 0.5}, 12.5},
        // It is held up while ranks compute.
        {doc::Contention{.message_delay_s = 4}, 12},
        {doc::Contention{.message_delay_s = 5}, 13},
        {doc::Contention{.message_delay_s = 9}, 14}}) {
    c.contention = contention;
    EXPECT_DOUBLE_EQ(step_s("ddp(first=8B, bucket=8B)", w, c), ddp_s);
    EXPECT_DOUBLE_EQ(step_s("bulk", w, c), 13);
  }
}

TEST(Fluid, CodingAndComputingSlowEachOther) {
  // Of 8 s of backward the first 4 run alone. Beside the rest the first gradient's 8 bytes are
  // encoded at 4 B/s, 2 s of work, both at half speed: until 8, when 2 s of backward are left,
  // which run alone until 10. Then the second gradient: 2 s, nothing travels as good as.
  const doc::Workload w = support::workload_at({4, 8}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(0, 1e-12);
  const char* const coded = "ddp(first=8B, bucket=8B)+codec(ratio=2, encode=4B/s)";
  EXPECT_NEAR(step_s(coded, w, c), 10, 1e-9);
  c.contention = doc::Contention{1, 1, 2};
  EXPECT_NEAR(step_s(coded, w, c), 12, 1e-9);
}

// The more messages and halves, the more processor: no strategy gets shorter, and one gets longer
// by at most what all of its messages take.
TEST(Fluid, NoMessageCostsMoreThanItTakes) {
  const doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  for (const std::string& strategy : kStrategies) {
    doc::Cluster c = support::two_rank_cluster(1e-4, 1e-10);
    const doc::Plan plan = planned(strategy, w, c);
    double messages = 0;
    for (const doc::Task& task : plan.variants.back().tasks)
      messages += doc::is_communication(task.kind);
    const double free = step_s(plan, c);
    for (const auto& [taken_s, delay_s] : {std::pair{0., 1e-4}, {1e-4, 0.}}) {
      c.contention = doc::Contention{1, 1, 1, taken_s, delay_s};
      const double step = step_s(plan, c);
      EXPECT_GE(step, free * (1 - 1e-9)) << strategy;
      EXPECT_LE(step, free + messages * 1e-4 * (1 + 1e-9)) << strategy;
    }
    // What is measured twice and differs by half of it is known no better.
    c.noise_floor = 0.5, c.start_delay_s = 1e-4;
    const cost::CostModel model(c);
    const Prices low(model, 2, Bound::low), high(model, 2, Bound::high);
    EXPECT_DOUBLE_EQ(high.contention().message_s, 1.5e-4);
    EXPECT_DOUBLE_EQ(low.contention().message_s, 1e-4 / 1.5);
    doc::Task message;
    message.kind = doc::TaskKind::all_reduce;
    EXPECT_DOUBLE_EQ(high.start_delay_s(message), 1.5e-4);
    EXPECT_EQ(low.start_delay_s(message), 0);
  }
}

TEST(Fluid, MoreContentionNeverMakesAStepFaster) {
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
  for (const std::string& strategy : kStrategies) {
    double before = 0;
    for (const double factor : {1.0, 1.1, 1.5, 3.0}) {
      c.contention = doc::Contention{factor, factor};
      const double step = step_s(strategy, w, c);
      EXPECT_GE(step, before * (1 - 1e-9)) << strategy << " at " << factor;
      before = step;
    }
  }
}

}  // namespace
}  // namespace linerate::sim
