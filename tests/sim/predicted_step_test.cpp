#include "linerate/sim/predicted_step.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "linerate/plan/make_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

/// A step of `ddp` on two ranks that computes 2 s and sends for 2 s, with 4 to 4.4 s by its prices.
struct OneStep {
  doc::Workload workload = support::workload_at({1, 2}, {8, 8});
  doc::Cluster cluster = support::two_rank_cluster(1e-4, 1e-9);
  SimResult result{
      .step_s = 4, .low_s = 4, .high_s = 4.4, .communication_s = 2, .exposed_communication_s = {}};

  doc::Plan plan() const {
    return plan::make_plan(workload, cluster, doc::parse_strategy("ddp"), 2);
  }
  double compute_s() const { return support::compute_s(plan()); }
  doc::Bounded step() const {
    Simulator simulator;
    return predicted_step(result, plan(), workload, cost::CostModel(cluster), simulator).step_s;
  }
};

TEST(PredictedStep, ComputingOnProcessorsIsAsNoisyAsTheProbe) {
  OneStep c;
  c.cluster.noise_floor = 0.1;
  EXPECT_EQ(c.step().high, 4.4);  // computing on devices of its own
  c.cluster.contention = doc::Contention{1.2, 1};
  EXPECT_NEAR(*c.step().high, 4 + std::hypot(0.4, 0.1 * c.compute_s()), 1e-12);
  EXPECT_NEAR(*c.step().low, 4 - c.compute_s() / 11, 1e-12);
  c.result.low_s = c.result.high_s = std::nullopt;
  EXPECT_FALSE(c.step().has_interval());
}

TEST(PredictedStep, RanksThatShareCoresMayOverlapNothing) {
  OneStep c;
  c.result.step_s = 3.2, c.result.low_s = 3.1, c.result.high_s = 3.3;
  c.cluster.contention = doc::Contention{1.2, 1};
  c.cluster.cores = 2;
  EXPECT_EQ(c.step().high, 3.3);
  c.cluster.cores = 1;
  EXPECT_NEAR(*c.step().high, c.compute_s() + 2, 1e-12);
  EXPECT_GT(*c.step().high, 3.3);
}

}  // namespace
}  // namespace linerate::sim
