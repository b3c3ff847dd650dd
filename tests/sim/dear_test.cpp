// DeAR's steady state against its recursion, written down on its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "linerate/core/random.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

struct Instance {
  doc::Workload workload;
  doc::Cluster cluster;
  std::vector<double> forward;  // of layer l = gradient L-1-l
};

// A gradient per layer, a bucket per gradient.
Instance random_instance(std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto unit = [&] { return random_unit(seed, counter++); };
  const auto layers = 1 + random_below(seed, counter++, 7);
  std::vector<double> ready;
  std::vector<std::int64_t> bytes;
  double t = 0;
  for (std::uint64_t l = 0; l < layers; ++l) {
    ready.push_back(t += unit() * 2);
    bytes.push_back(4 * static_cast<std::int64_t>(1 + random_below(seed, counter++, 8)));
  }
  Instance in{
      support::workload_at(ready, bytes), support::two_rank_cluster(unit(), unit() * 0.2), {}};
  double forward = 0;
  for (std::uint64_t l = 0; l < layers; ++l) {
    in.forward.push_back(unit());
    forward += in.forward.back();
    in.workload.layers.push_back({"layer" + std::to_string(l), "linear", in.forward.back(), {}, 0});
    in.workload.gradients[layers - 1 - l].layer = static_cast<int>(l);
  }
  in.workload.forward_s = forward;
  return in;
}

// Time 0 = start of backward; period = end of forward.
double reference_period(const Instance& in) {
  const auto& g = in.workload.gradients;
  const double alpha = in.cluster.network.latency_s;
  const double beta = 0.5 / in.cluster.network.bandwidth_bytes_per_s;
  // Both halves cut their array into a block of whole elements for each of the two ranks.
  const auto cost = [&](std::size_t i) {
    return alpha + beta * static_cast<double>((g[i].bytes() + 7) / 8 * 8);
  };
  double channel = 0;
  std::vector<double> scattered;
  for (std::size_t i = 0; i < g.size(); ++i)
    scattered.push_back(channel = std::max(channel, g[i].ready_s) + cost(i));
  double forward = in.workload.backward_s;
  for (std::size_t l = 0; l < g.size(); ++l) {
    const std::size_t i = g.size() - 1 - l;
    channel = std::max(channel, scattered[i]) + cost(i);
    forward = std::max(forward, channel) + in.forward[l];
  }
  return forward;
}

TEST(Dear, ReachesTheSteadyStateOfTheRecursion) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Instance in = random_instance(seed);
    const doc::Plan plan =
        plan::make_plan(in.workload, in.cluster, doc::parse_strategy("dear(layers=1)"), 2);
    ASSERT_EQ(plan.variants.back().buckets().size(), in.workload.gradients.size());
    const double expected = reference_period(in);
    EXPECT_NEAR(simulate(plan, cost::CostModel(in.cluster)).step_s, expected, 1e-9 * expected)
        << "seed " << seed;
  }
}

// The same recursion where a bucket ends behind each gradient whose bit is set in `mask`, and
// behind the last one. A bucket is gathered before the first layer that it holds parameters of.
double period_of(const Instance& in, unsigned mask) {
  const auto& g = in.workload.gradients;
  const double alpha = in.cluster.network.latency_s;
  const double beta = 0.5 / in.cluster.network.bandwidth_bytes_per_s;
  std::vector<double> cost;         // of each bucket's halves
  std::vector<std::size_t> bucket;  // by gradient
  double channel = 0, bytes = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    bucket.push_back(cost.size());
    bytes += static_cast<double>((g[i].bytes() + 7) / 8 * 8);
    if (i + 1 < g.size() && !((mask >> i) & 1)) continue;
    cost.push_back(alpha + beta * bytes);
    channel = std::max(channel, g[i].ready_s) + cost.back();
    bytes = 0;
  }
  double forward = in.workload.backward_s;
  std::size_t gathered = cost.size();
  for (std::size_t l = 0; l < g.size(); ++l) {
    if (const std::size_t b = bucket[g.size() - 1 - l]; b < gathered) {
      channel += cost[b];
      gathered = b;
    }
    forward = std::max(forward, channel) + in.forward[l];
  }
  return forward;
}

TEST(Dear, ChoosesTheBestOfAllBuckets) {
  int better_than_one_each = 0, better_than_one = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Instance in = random_instance(seed);
    for (doc::Gradient& g : in.workload.gradients) g.elements *= 2;  // blocks without padding
    double best = std::numeric_limits<double>::infinity();
    const unsigned all = 1u << (in.workload.gradients.size() - 1);
    for (unsigned mask = 0; mask < all; ++mask) best = std::min(best, period_of(in, mask));
    const doc::Plan plan = plan::make_plan(in.workload, in.cluster, doc::parse_strategy("dear"), 2);
    EXPECT_NEAR(simulate(plan, cost::CostModel(in.cluster)).step_s, best, 1e-9 * best)
        << "seed " << seed;
    better_than_one += best < period_of(in, 0) * (1 - 1e-9);
    better_than_one_each += best < period_of(in, all - 1) * (1 - 1e-9);
  }
  EXPECT_GT(better_than_one, 100);  // the cases tell good choices from bad ones
  EXPECT_GT(better_than_one_each, 100);
}

TEST(Dear, HidesUnderForwardWhatPlainOverlapLeavesExposed) {
  // One gradient of the second layer, ready at 10 s; forward 10 s a layer. The all-reduce takes 4
  // s, exposed under ddp: 20 + 10 + 4. Split, its first half (2 s) runs in 10 .. 12 and the second
  // in 12 .. 14, both under the first layer's forward in 10 .. 20: nothing is exposed.
  doc::Workload w = support::workload_at({10}, {16});
  w.layers = {{"front", "embedding", 10.0, {}, 0}, {"back", "linear", 10.0, {}, 0}};
  w.gradients[0].layer = 1;
  w.forward_s = 20;
  const doc::Cluster c = support::two_rank_cluster(2, 0.125);
  const auto step = [&](const char* strategy) {
    return simulate(plan::make_plan(w, c, doc::parse_strategy(strategy), 2), cost::CostModel(c))
        .step_s;
  };
  EXPECT_DOUBLE_EQ(step("ddp"), 34);
  EXPECT_DOUBLE_EQ(step("dear"), 30);
}

}  // namespace
}  // namespace linerate::sim
