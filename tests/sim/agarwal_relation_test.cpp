// The closed form of Agarwal et al. 2021 beside the simulator.
#include <gmock/gmock.h>

#include <algorithm>

#include "linerate/core/random.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

TEST(Agarwal2021, SimulationAddsTheWaitForTheFirstBucket) {
  // k buckets ready at j gamma T_comp / k on a FIFO: exactly
  // max(gamma T_comp, gamma T_comp / k + (k-1) T(b)) + T(last), never less than the closed form.
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::uint64_t counter = 0;
    const auto below = [&](std::uint64_t n) { return random_below(seed, counter++, n); };
    const auto k = static_cast<std::int64_t>(1 + below(12));
    const std::int64_t bucket = 4 * static_cast<std::int64_t>(1 + below(1000));
    const std::int64_t last =
        4 * static_cast<std::int64_t>(1 + below(static_cast<std::uint64_t>(bucket / 4)));
    const double backward = 1e-3 * static_cast<double>(1 + below(1000));
    std::vector<double> ready;
    std::vector<std::int64_t> bytes;
    for (std::int64_t j = 1; j <= k; ++j) {
      ready.push_back(backward * static_cast<double>(j) / static_cast<double>(k));
      bytes.push_back(j == k ? last : bucket);
    }
    const doc::Workload w = support::workload_at(ready, bytes);
    const doc::Cluster c = support::two_rank_cluster(1e-5 * static_cast<double>(below(100)),
                                                     1e-6 * static_cast<double>(1 + below(100)));
    const std::string size = std::to_string(bucket) + "B";
    const doc::Plan plan =
        plan::make_plan(w, c, doc::parse_strategy("ddp(first=" + size + ", bucket=" + size + ")"),
                        2, {.first_step = false});
    const double simulated = simulate(plan, cost::CostModel(c)).step_s;
    const cost::AgarwalInput in{backward,
                                static_cast<double>((k - 1) * bucket + last),
                                static_cast<double>(bucket),
                                2,
                                {c.network.latency_s, 1 / c.network.bandwidth_bytes_per_s, 0},
                                1,
                                0.05};
    const cost::Line ring = cost::ring_all_reduce(2, in.link);
    const double exact =
        std::max(backward, backward / static_cast<double>(k) +
                               static_cast<double>(k - 1) * ring(static_cast<double>(bucket))) +
        ring(static_cast<double>(last));
    ASSERT_EQ(cost::buckets_of(in).size(), static_cast<std::size_t>(k)) << "seed " << seed;
    EXPECT_NEAR(simulated, exact, 1e-12 * exact) << "seed " << seed;
    EXPECT_GE(simulated, cost::overlapped_s(in) * (1 - 1e-12)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace linerate::sim
