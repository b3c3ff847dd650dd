// Groups of ranks: who waits for whom, and what a part pays.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "plan/planned.hpp"
#include "sim/hand_plan.hpp"
#include "sim/task_trace.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using support::compute;
using support::exchange;
using support::trace_tasks;
using support::TracedTask;

class Groups : public ::testing::Test {
 protected:
  // Ring of n ranks: (n-1) + 2 (n-1)/n 0.25 S, that is 3 s for 8 B between two and 6 s between
  // four.
  Groups() : cluster_(support::two_rank_cluster(1, 0.25)) {}
  struct Expected {
    std::int32_t rank;
    std::uint32_t task;
    double start_s, end_s;
  };
  /// Of one step.
  void expect_times(const doc::Plan& plan, const std::vector<Expected>& all) const {
    const auto trace = trace_tasks(plan, cost::CostModel(cluster_), 1);
    for (const Expected& e : all) {
      const auto found = std::ranges::find_if(
          trace, [&](const TracedTask& t) { return t.rank == e.rank && t.task == e.task; });
      ASSERT_NE(found, trace.end()) << "task " << e.task << " on rank " << e.rank;
      EXPECT_NEAR(found->start_s, e.start_s, 1e-9) << "of task " << e.task << " on rank " << e.rank;
      EXPECT_NEAR(found->end_s, e.end_s, 1e-9) << "of task " << e.task << " on rank " << e.rank;
    }
  }

  doc::Cluster cluster_;
};

TEST_F(Groups, ACollectiveCostsByTheSizeOfItsPart) {
  doc::Plan plan = support::empty_plan(8);
  const std::int32_t uneven = plan.group({"uneven", {{0, 1}, {2, 3, 4, 5}, {6}}});
  plan.variants.front().add(exchange(8, uneven));
  plan.variants.front().add(exchange(8));
  const double all = 7 + 2 * 7.0 / 8 * 0.25 * 8;
  expect_times(plan, {{1, 0, 0, 3}, {3, 0, 0, 6}, {6, 0, 0, 0}, {7, 1, 0, 6 + all}});
  // What the busiest rank sends.
  EXPECT_NEAR(simulate(plan, cost::CostModel(cluster_)).communication_s, 6 + all, 1e-9);
}

/// Broadcasts of 1 s on each rank's own link that are everywhere after 3 s: of any size, and 1 s
/// where nothing is sent.
doc::CollectiveCost passed_on() {
  doc::CollectiveCost cost;
  cost.collective = Collective::broadcast;
  cost.ranks = 4;
  cost.segments = {{0, 1, 1, 0}, {1, std::int64_t{1} << 31, 3, 0}};
  return cost;
}

/// A task of its own makes every rank its own class.
void make_each_a_class(doc::Plan& plan) {
  for (std::int32_t r = 0; r < plan.ranks; ++r)
    plan.variants.front().add(compute(0, plan.group({"r" + std::to_string(r), {{r}}})));
}

doc::Task rooted(std::int32_t root) {
  doc::Task task = exchange(8, doc::kWhole, doc::TaskKind::broadcast);
  task.root = root;
  return task;
}

// From hand to hand 4 ranks are reached in two messages, rank 0 -> 1, 2 and from there 3: at 1, 2,
// 2 and 3 s. Rank 1 has the first at 2 s and sends the second: it is through at 3 s, its 2 and 3
// have that at 4 s, its 0 (two messages away) at 5 s. Rank 3 sends the third from 4 s on, until 5
// s; 0 and 2 have it at 6 and 7 s, and 1 at 6 s. One behind the other, each when the one before is
// everywhere: 9 s.
TEST_F(Groups, BroadcastsOfDifferentRootsOverlapAlongTheTree) {
  cluster_.collectives = {passed_on()};
  doc::Plan plan = support::empty_plan(4);
  doc::TaskGraph& g = plan.variants.front();
  for (const std::int32_t root : {0, 1, 3}) g.add(rooted(root));
  make_each_a_class(plan);
  const double ends[3][4] = {{1, 2, 2, 3}, {5, 3, 4, 4}, {6, 6, 7, 5}};
  for (std::uint32_t b = 0; b < 3; ++b)
    for (std::int32_t r = 0; r < 4; ++r)
      expect_times(plan, {{r, b, b == 0 ? 0 : ends[b - 1][r], ends[b][r]}});
}

// The root does not wait for a rank that comes late, nor do the others; what the late one has
// missed lies there.
TEST_F(Groups, ABroadcastWaitsForItsRootAlone) {
  cluster_.collectives = {passed_on()};
  doc::Plan plan = support::empty_plan(4);
  const std::int32_t late = plan.group({"late", {{1}}}), first = plan.group({"root", {{0}}});
  plan.group({"other", {{2}}});
  doc::TaskGraph& g = plan.variants.front();
  g.add(rooted(0), g.add(compute(10, late)), g.add(compute(1, first)));
  g.add(compute(0, plan.group({"other", {{2}}})));
  expect_times(plan, {{0, 2, 1, 2}, {2, 2, 0, 3}, {3, 2, 0, 4}, {1, 2, 10, 11}});
}

// Curves of one line say nothing of what passes on other ranks' links: one behind the other.
TEST_F(Groups, BroadcastsPricedByOneLineDoNotOverlap) {
  cluster_.collectives = {passed_on()};
  cluster_.collectives.front().segments = {{0, std::int64_t{1} << 31, 1, 0.25}};
  doc::Plan plan = support::empty_plan(4);
  doc::TaskGraph& g = plan.variants.front();
  for (const std::int32_t root : {0, 1, 3}) g.add(rooted(root));
  g.add(compute(0, plan.group({"one", {{1}}})));
  for (std::int32_t r = 0; r < 4; ++r) expect_times(plan, {{r, 2, 6, 9}});
}

// A link carries 4 B/s, the root of a tree over four ranks sends 8 B twice: 4 s of its link, and no
// rank sends more. The curve says 9 s at 8 B and 1 s at none: 4 s pass on the links of others.
TEST_F(Groups, NoRankCarriesMoreThanTheRootOfATree) {
  cluster_.collectives = {passed_on()};
  cluster_.collectives.front().segments = {{0, std::int64_t{1} << 31, 1, 1}};
  const cost::CostModel model(cluster_);
  const BroadcastTime time = Prices(model, 4).broadcast_of_part(rooted(0), 4);
  EXPECT_DOUBLE_EQ(time.own_s, 1 + 4);
  EXPECT_DOUBLE_EQ(time.last_s, 9);
}

/// A chain, link by link: a link carries one chunk in 1 s, a rank hands a chunk on as soon as it
/// has it, and comes to the next broadcast when it is through with this one. When the last rank is.
double chains_s(int ranks, const std::vector<std::int32_t>& roots, int chunks) {
  std::vector<double> link_s(to_index(ranks)), through_s(link_s);
  for (const std::int32_t root : roots) {
    std::vector<double> has_s(to_index(chunks));
    for (int hop = 0; hop < ranks; ++hop) {
      const auto r = to_index((root + hop) % ranks);
      for (double& chunk : has_s) {
        chunk = std::max(hop == 0 ? 0 : chunk, through_s[r]);
        if (hop + 1 < ranks) chunk = link_s[r] = std::max(chunk, link_s[r]) + 1;
      }
      through_s[r] = has_s.back();
    }
  }
  return *std::max_element(through_s.begin(), through_s.end());
}

// A chain of c chunks is everywhere after P - 2 + c. In trains of changing roots the model is
// within 15 % of what its links do; one behind the other takes up to twice as long.
TEST_F(Groups, BroadcastsInARowAreNearTheTimeOfTheirLinks) {
  for (const int ranks : {4, 8})
    for (const int chunks : {1, 2, 4, 8}) {
      std::vector<std::int32_t> roots;
      for (std::uint64_t i = 0; i < 60; ++i)
        roots.push_back(static_cast<std::int32_t>(random_unit(1, i) * ranks));
      const double alone_s = ranks - 2 + chunks;
      ASSERT_DOUBLE_EQ(chains_s(ranks, {0}, chunks), alone_s);
      cluster_.ranks = ranks;
      cluster_.collectives = {passed_on()};
      doc::CollectiveCost& cost = cluster_.collectives.front();
      cost.ranks = ranks;
      cost.segments = {{0, 1, 0, 1e-3}, {1, std::int64_t{1} << 31, ranks - 2.0, 1e-3}};
      doc::Plan plan = support::empty_plan(ranks);
      doc::TaskGraph& g = plan.variants.front();
      for (const std::int32_t root : roots) {
        doc::Task task = rooted(root);
        task.bytes = 1000 * chunks;
        g.add(task);
      }
      make_each_a_class(plan);
      double modelled_s = 0;
      for (const TracedTask& traced : trace_tasks(plan, cost::CostModel(cluster_), 1))
        modelled_s = std::max(modelled_s, traced.end_s);
      const double links_s = chains_s(ranks, roots, chunks);
      EXPECT_NEAR(modelled_s, links_s, 0.15 * links_s) << ranks << " ranks, " << chunks;
      EXPECT_LT(modelled_s, 60 * alone_s);
    }
}

TEST(GroupClasses, AClassIsOfOnePartInEveryUsedGroup) {
  doc::Plan plan = support::empty_plan(6);
  const std::int32_t node = plan.group({"node", {{0, 1, 2}, {5, 4, 3}}});
  plan.group({"unused", {{0}, {1}}});
  plan.variants.front().add(exchange(8, node));
  const RankClasses two = classes_of(plan, plan.variants.front(), {});
  EXPECT_THAT(two.class_of, ::testing::ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_EQ(two.members.count(node), 2u);
  EXPECT_EQ(two.members.position(node, 1), 1u);
  doc::Cluster cluster;
  cluster.rank_speeds = {{4, 1.5, 0}};
  const RankClasses three = classes_of(plan, plan.variants.front(), cluster);
  EXPECT_THAT(three.class_of, ::testing::ElementsAre(0, 0, 0, 1, 2, 1));
  EXPECT_THAT(three.members.classes_in(node), ::testing::ElementsAre(0, 1, 2));
}

TEST(GroupClasses, ATaskHasASlotForEachClassOfItsGroup) {
  doc::Plan plan = support::empty_plan(4);
  const std::int32_t one = plan.group({"rank 2", {{2}}});
  plan.variants.front().add(compute(1, one));
  plan.variants.front().add(exchange(8));
  TaskTimes times;
  const cost::CostModel model(support::two_rank_cluster(1, 0.25));
  Prices prices(model, 4);
  Unrolled step;
  lay_out_steps(plan, 0, 1, step);
  run_steps(step, prices, times);
  EXPECT_EQ(times.slot(0, 0), kNoSlot);
  EXPECT_EQ(times.slot(0, 1), 0u);
  EXPECT_EQ(times.slot(1, 0), 1u);
  EXPECT_EQ(times.slot(1, 1), 2u);
}

TEST(GroupClasses, RefusesARankBeyondTheJob) {
  doc::Plan plan = support::empty_plan(2);
  plan.variants.front().add(compute(1, plan.group({"rank 2", {{2}}})));
  EXPECT_THROW(
      static_cast<void>(simulate(plan, cost::CostModel(support::two_rank_cluster(1, 0.25)))),
      InputError);
}

using GroupContention = Groups;

TEST_F(GroupContention, PartsInTransferAreSlowedByTheirOwnRanksAlone) {
  // Both pairs transfer 3 s from 1 on. Rank 3 computes on until 9: its pair goes at half speed.
  doc::Plan plan = support::empty_plan(4);
  const std::int32_t pair = plan.group({"pair", {{0, 1}, {2, 3}}});
  const std::int32_t busy = plan.group({"rank 3", {{3}}});
  doc::TaskGraph& g = plan.variants.front();
  const auto sent = g.add(exchange(8, pair), g.add(compute(1)));
  g.add(compute(8, busy));
  cluster_.contention = doc::Contention{1, 2};
  expect_times(plan, {{0, sent, 1, 4}, {2, sent, 1, 7}, {3, sent, 1, 7}});
}

TEST_F(GroupContention, WaitingForOthersSlowsNothing) {
  // Rank 0 submits at 1 and computes 4 s on; nothing is transferred before rank 1 submits at 3.
  // Until then rank 0 has done 2 of its 4 s; the transfer (3 s) and the rest run side by side, the
  // rest at half speed until 6 and alone for its last half second.
  doc::Plan plan = support::empty_plan(2);
  const std::int32_t late = plan.group({"rank 1", {{1}}});
  const std::int32_t early = plan.group({"rank 0", {{0}}});
  doc::TaskGraph& g = plan.variants.front();
  const auto first = g.add(compute(1));
  const auto second = g.add(compute(2, late), first);
  const auto sent = g.add(exchange(8), second);
  g.add_predecessor_to_last(first);
  const auto rest = g.add(compute(4, early));
  cluster_.contention = doc::Contention{2, 1};
  expect_times(plan, {{0, sent, 1, 6}, {1, sent, 3, 6}, {0, rest, 1, 6.5}});
}

// Ranks of different speed in classes against the same step written out rank by rank.

// Every task that is no collective becomes one per rank, its duration scaled; of a collective's
// predecessors each rank waits for its own. Delays become host tasks in front of the first
// computation.
doc::Plan written_out(const doc::Plan& plan, const std::vector<doc::RankSpeed>& speeds) {
  doc::Plan out = plan;
  out.variants = {{}};
  out.cycle = {0};
  doc::TaskGraph& graph = out.variants.front();
  std::vector<std::int32_t> groups;
  std::vector<std::uint32_t> delays;
  for (const doc::RankSpeed& s : speeds) {
    groups.push_back(out.group({"rank " + std::to_string(s.rank), {{s.rank}}}));
    delays.push_back(graph.add(support::work(doc::Resource::host, s.delay_s, groups.back())));
  }
  const doc::TaskGraph& steady = plan.variants.back();
  std::vector<std::vector<std::uint32_t>> copies(steady.tasks.size());
  bool computed = false;
  for (std::size_t i = 0; i < steady.tasks.size(); ++i) {
    const bool joint = doc::is_communication(steady.tasks[i].kind),
               computes = steady.tasks[i].resource == doc::Resource::compute;
    for (std::size_t k = 0; k < speeds.size(); ++k) {
      if (!joint || k == 0) {
        doc::Task copy = steady.tasks[i];
        if (!joint) copy.group = groups[k], copy.seconds *= speeds[k].compute_factor;
        copies[i].push_back(graph.add(copy));
        if (computes && !computed) graph.add_predecessor_to_last(delays[k]);
      }
      for (const std::uint32_t p : steady.predecessors(i))
        graph.add_predecessor_to_last(copies[p].size() == 1 ? copies[p].front() : copies[p][k]);
    }
    computed |= computes;
  }
  return out;
}

TEST(RankClasses, EqualTheStepWrittenOutRankByRank) {
  constexpr int kFive = 5;
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  w.forward_s = 0.02;
  w.update_s = 0.01;
  std::vector<doc::RankSpeed> speeds;
  for (int r = 0; r < kFive; ++r)
    speeds.push_back({r, r == 2 ? 1.4 : 1 + 0.1 * random_unit(7, static_cast<std::uint64_t>(r)),
                      r == 3 ? 0.015 : 0});
  for (const char* strategy :
       {"bulk", "ddp", "optimal", "ddp+codec(ratio=8, encode=1GB/s, decode=2GB/s)"})
    for (const bool contended : {false, true}) {
      doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
      if (contended) c.contention = doc::Contention{1.3, 1.6, 1, 2e-4, 3e-4};
      const doc::Plan plan = support::planned(strategy, w, c, kFive, {.first_step = false});
      // Its tasks are about nothing that the Plan names, so it is none to hand to simulate().
      const double expected = Simulator().step_s(written_out(plan, speeds), cost::CostModel(c));
      c.rank_speeds = speeds;
      EXPECT_NEAR(support::step_s(plan, c), expected, 1e-9 * expected) << strategy;
    }
}

TEST(RankClasses, EqualRanksShareAClass) {
  doc::Cluster c;
  c.rank_speeds = {{1, 1.5, 0}, {3, 1.5, 0}, {2, 1, 0.01}};
  const doc::Plan plan = support::empty_plan(6);
  const RankClasses classes = classes_of(plan, plan.variants.front(), c);
  EXPECT_EQ(classes.count(), 3);
  EXPECT_THAT(classes.class_of, ::testing::ElementsAre(0, 1, 2, 1, 0, 0));
}

}  // namespace
}  // namespace linerate::sim
