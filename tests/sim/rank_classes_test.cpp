// Ranks of different speed in classes against the same step written out rank by rank.
#include "linerate/sim/rank_classes.hpp"

#include <gmock/gmock.h>

#include "linerate/core/random.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

// Every task that is no collective becomes one per rank, its duration scaled; of a collective's
// predecessors each rank waits for its own. Delays become host tasks in front of the first
// computation.
class WrittenOut {
 public:
  WrittenOut(const doc::Plan& plan, const std::vector<doc::RankSpeed>& speeds)
      : speeds_(speeds), out_(plan) {
    for (const doc::RankSpeed& s : speeds) {
      const std::string name = "rank " + std::to_string(s.rank);
      groups_.push_back(out_.group({name, {{s.rank}}}));
    }
    const doc::TaskGraph steady = plan.variants.back();
    out_.variants = {{}};
    out_.cycle = {0};
    add_delays();
    for (std::size_t i = 0; i < steady.tasks.size(); ++i) add(steady, i);
  }
  const doc::Plan& plan() const { return out_; }

 private:
  doc::TaskGraph& graph() { return out_.variants.front(); }

  void add_delays() {
    for (std::size_t k = 0; k < speeds_.size(); ++k)
      delays_.push_back(
          graph().add(support::work(doc::Resource::host, speeds_[k].delay_s, groups_[k])));
  }

  void add(const doc::TaskGraph& steady, std::size_t i) {
    const doc::Task& task = steady.tasks[i];
    const bool joint = doc::is_communication(task.kind);
    std::vector<std::uint32_t> mine;
    for (std::size_t k = 0; k < speeds_.size(); ++k) {
      if (!joint || k == 0) {
        doc::Task copy = task;
        if (!joint) copy.group = groups_[k], copy.seconds *= speeds_[k].compute_factor;
        mine.push_back(graph().add(copy));
        if (!computed_ && task.resource == doc::Resource::compute)
          graph().add_predecessor_to_last(delays_[k]);
      }
      for (const std::uint32_t p : steady.predecessors(i))
        graph().add_predecessor_to_last(copies_[p].size() == 1 ? copies_[p].front()
                                                               : copies_[p][k]);
    }
    computed_ = computed_ || task.resource == doc::Resource::compute;
    copies_.push_back(std::move(mine));
  }

  const std::vector<doc::RankSpeed>& speeds_;
  doc::Plan out_;
  std::vector<std::int32_t> groups_;
  std::vector<std::uint32_t> delays_;
  std::vector<std::vector<std::uint32_t>> copies_;  // by task of the original
  bool computed_ = false;
};

class RankClassesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RankClassesTest, EqualTheStepWrittenOutRankByRank) {
  constexpr int kFive = 5;
  doc::Workload w = support::workload_of(support::resnet50_parameters(), 4e-4);
  w.forward_s = 0.02;
  w.update_s = 0.01;
  for (const bool contended : {false, true}) {
    doc::Cluster c = support::two_rank_cluster(1e-4, 1e-9);
    if (contended) c.contention = doc::Contention{1.3, 1.6, 1, 2e-4, 3e-4};
    std::vector<doc::RankSpeed> speeds;
    for (int r = 0; r < kFive; ++r)
      speeds.push_back({r, r == 2 ? 1.4 : 1 + 0.1 * random_unit(7, static_cast<std::uint64_t>(r)),
                        r == 3 ? 0.015 : 0});
    const doc::Plan plan =
        plan::make_plan(w, c, doc::parse_strategy(GetParam()), kFive, {.first_step = false});
    // Its tasks are about nothing that the Plan names, so it is none to hand to simulate().
    const double expected = Simulator().step_s(WrittenOut(plan, speeds).plan(), cost::CostModel(c));
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
  const doc::Plan plan = support::empty_plan(6);
  const RankClasses classes = classes_of(plan, plan.variants.front(), c);
  EXPECT_EQ(classes.count(), 3);
  EXPECT_THAT(classes.class_of, ::testing::ElementsAre(0, 1, 2, 1, 0, 0));
}

TEST(RankClasses, AStragglerDelaysEverybody) {
  // Backward 10 s on one rank, 15 s on the slow one; the exchange of 5 s begins at 15.
  doc::Workload w = support::workload_at({4, 10}, {8, 8});
  doc::Cluster c = support::two_rank_cluster(1, 0.25);
  c.rank_speeds = {{1, 1.5, 0}};
  const doc::Plan plan = plan::make_plan(w, c, doc::parse_strategy("bulk"), 2);
  EXPECT_DOUBLE_EQ(simulate(plan, cost::CostModel(c)).step_s, 20);
}

}  // namespace
}  // namespace linerate::sim
