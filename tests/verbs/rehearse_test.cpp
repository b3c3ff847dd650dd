#include "linerate/verbs/rehearse.hpp"

#include <gmock/gmock.h>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::verbs {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// 28 bytes between two ranks: 1e-4 s and 28 ns after 5e-4 s of computation.
doc::Workload workload() { return support::workload_of({7}, 5e-4); }
doc::Cluster cluster() { return support::two_rank_cluster(1e-4, 1e-9); }

Rehearsed rehearsed_on_two(const std::function<PricedPlan(comm::Communicator&)>& plan) {
  Rehearsed result;
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    Rehearsed mine = rehearse(communicator, plan(communicator), {.steps = 2, .warm_up = 1});
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

Rehearsed rehearsed(const doc::Cluster& c) {
  return rehearsed_on_two([&](comm::Communicator& communicator) {
    return plan_strategy(communicator, workload(), c, doc::parse_strategy("bulk"));
  });
}

TEST(Rehearse, ComesWithItsPrediction) {
  const Rehearsed r = rehearsed(cluster());
  EXPECT_EQ(r.plan->strategy, "bulk");
  EXPECT_EQ(r.plan->ranks, 2);
  EXPECT_EQ(r.measured.mode, "rehearsed");
  ASSERT_TRUE(r.predicted);
  EXPECT_EQ(r.predicted->one_rank_step_s, exec::computation_s(*r.plan));
  EXPECT_NEAR(r.step.predicted_s.value(), 5e-4 + 1e-4 + 28e-9, 1e-8);
  EXPECT_NEAR(r.exposed.predicted_s.value(), 1e-4 + 28e-9, 1e-8);
  EXPECT_GE(r.step.measured_s.value(), 5e-4);
  EXPECT_EQ(r.step.error().value(), *r.step.predicted_s / *r.step.measured_s - 1);
}

TEST(Rehearse, SaysWhereCodingCountsAsFree) {
  const auto notes = [](doc::Cluster c, const char* strategy) {
    return rehearsed_on_two([&](comm::Communicator& communicator) {
             return plan_strategy(communicator, workload(), c, doc::parse_strategy(strategy));
           })
        .notes;
  };
  EXPECT_THAT(notes(cluster(), "bulk+topk"), Contains(HasSubstr("count as taking no time")));
  EXPECT_THAT(notes(cluster(), "bulk"),
              testing::Not(Contains(HasSubstr("count as taking no time"))));
  doc::Cluster calibrated = cluster();
  calibrated.codecs = {{"topk", 1e-6, 1e9, 1e-6, 1e9}};
  EXPECT_THAT(notes(calibrated, "bulk+topk"),
              testing::Not(Contains(HasSubstr("count as taking no time"))));
}

// Computation waits for as long as the Workload says, on every rank.
TEST(Rehearse, NeitherContentionNorSlowRanksArePredicted) {
  doc::Cluster slow = cluster();
  slow.contention = doc::Contention{3, 3};
  slow.rank_speeds = {{.rank = 1, .compute_factor = 5}};
  EXPECT_EQ(rehearsed(slow).step.predicted_s, rehearsed(cluster()).step.predicted_s);
}

TEST(Rehearse, WithoutAClusterThereIsNoPrediction) {
  const doc::Plan plan = *rehearsed(cluster()).plan;
  const Rehearsed r =
      rehearsed_on_two([&](comm::Communicator&) { return with_prices(plan, std::nullopt); });
  EXPECT_FALSE(r.predicted);
  for (const compare::ComparedRow& row : {r.step, r.exposed}) {
    EXPECT_FALSE(row.predicted_s);
    EXPECT_FALSE(row.error());
    EXPECT_FALSE(row.noise);
  }
  EXPECT_GE(r.step.measured_s.value(), 5e-4);
  EXPECT_TRUE(r.notes.empty());
}

TEST(Rehearse, SaysWhatThePredictionLeaves) {
  doc::Cluster shared = cluster();
  shared.cores = 1;
  EXPECT_THAT(rehearsed(shared).notes, Contains(HasSubstr("share 1 core")));
}

TEST(Rehearse, PlansForTheBandwidthAskedAbout) {
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const PricedPlan p = plan_strategy(communicator, workload(), cluster(),
                                       doc::parse_strategy("bulk"), BytesPerSecond{1e3});
    EXPECT_EQ(p.model->network_bytes_per_s(), 1e3);
  });
}

TEST(Rehearse, WhatOneRankCannotPlanIsThrownOnEveryRank) {
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    doc::Workload w = workload();
    if (communicator.rank() == 1) w.gradients.clear();
    const char* strategy = communicator.rank() == 1 ? "ddp+codec(ratio=0.5)" : "ddp";
    EXPECT_THROW(plan_strategy(communicator, w, cluster(), doc::parse_strategy(strategy)),
                 UsageError);
  });
}

TEST(ProbeNetwork, IsTheSameOnEveryRank) {
  std::vector<std::string> clusters(2);
  comm::run_ranks(2,
                  [&](comm::Communicator& communicator) {
                    calibrate::CollectiveProbeOptions options;
                    options.largest = KiB(16);
                    options.budget = Duration{0.05};
                    clusters[static_cast<std::size_t>(communicator.rank())] =
                        doc::to_json(probe_network(communicator, options));
                  },
                  {});
  EXPECT_EQ(clusters[0], clusters[1]);
  EXPECT_THAT(clusters[0], HasSubstr("2 ranks over thread"));
}

}  // namespace
}  // namespace linerate::verbs
