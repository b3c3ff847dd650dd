// DeAR's steady state against its recursion, written down on its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"
#include "plan/planned.hpp"
#include "plan/random.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::sim {
namespace {

using support::planned;
using support::step_s;

struct Instance {
  doc::Workload workload;
  doc::Cluster cluster;
  std::vector<double> forward;  // of layer l = gradient L-1-l
};

// A gradient per layer, a bucket per gradient.
Instance random_instance(std::uint64_t seed) {
  support::Random random(seed);
  const auto layers = 1 + random.below(7);
  std::vector<double> ready;
  std::vector<std::int64_t> bytes;
  double t = 0;
  for (std::uint64_t l = 0; l < layers; ++l) {
    ready.push_back(t += random.unit() * 2);
    bytes.push_back(4 * static_cast<std::int64_t>(1 + random.below(8)));
  }
  Instance in{support::workload_at(ready, bytes),
              support::two_rank_cluster(random.unit(), random.unit() * 0.2),
              {}};
  double forward = 0;
  for (std::uint64_t l = 0; l < layers; ++l) {
    in.forward.push_back(random.unit());
    forward += in.forward.back();
    in.workload.layers.push_back({"layer" + std::to_string(l), "linear", in.forward.back(), {}, 0});
    in.workload.gradients[layers - 1 - l].layer = static_cast<int>(l);
  }
  in.workload.forward_s = forward;
  return in;
}

// Time 0 = start of backward; period = end of forward. A bucket ends behind each gradient whose bit
// is set in `mask`, and behind the last one. It is gathered before the first layer that it holds
// parameters of. Both halves cut each array into a block of whole elements for each of the two
// ranks.
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

constexpr unsigned kOneEach = ~0u;

TEST(Dear, ReachesTheSteadyStateOfTheRecursion) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Instance in = random_instance(seed);
    const doc::Plan plan = planned("dear(layers=1)", in.workload, in.cluster);
    ASSERT_EQ(plan.variants.back().buckets().size(), in.workload.gradients.size());
    const double expected = period_of(in, kOneEach);
    EXPECT_NEAR(step_s(plan, in.cluster), expected, 1e-9 * expected) << "seed " << seed;
  }
}

TEST(Dear, ChoosesTheBestOfAllBuckets) {
  int better_than_one_each = 0, better_than_one = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Instance in = random_instance(seed);
    for (doc::Gradient& g : in.workload.gradients) g.elements *= 2;  // blocks without padding
    double best = std::numeric_limits<double>::infinity();
    const unsigned all = 1u << (in.workload.gradients.size() - 1);
    for (unsigned mask = 0; mask < all; ++mask) best = std::min(best, period_of(in, mask));
    EXPECT_NEAR(step_s("dear", in.workload, in.cluster), best, 1e-9 * best) << "seed " << seed;
    better_than_one += best < period_of(in, 0) * (1 - 1e-9);
    better_than_one_each += best < period_of(in, kOneEach) * (1 - 1e-9);
  }
  EXPECT_GT(better_than_one, 100);  // the cases tell good choices from bad ones
  EXPECT_GT(better_than_one_each, 100);
}

// The closed form of Agarwal et al. 2021 beside the simulator.

TEST(Agarwal2021, SimulationAddsTheWaitForTheFirstBucket) {
  // k buckets ready at j gamma T_comp / k on a FIFO: exactly
  // max(gamma T_comp, gamma T_comp / k + (k-1) T(b)) + T(last), never less than the closed form.
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    support::Random random(seed);
    const auto k = static_cast<std::int64_t>(1 + random.below(12));
    const std::int64_t bucket = 4 * static_cast<std::int64_t>(1 + random.below(1000));
    const std::int64_t last =
        4 * static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(bucket / 4)));
    const double backward = 1e-3 * static_cast<double>(1 + random.below(1000));
    std::vector<double> ready;
    std::vector<std::int64_t> bytes;
    for (std::int64_t j = 1; j <= k; ++j) {
      ready.push_back(backward * static_cast<double>(j) / static_cast<double>(k));
      bytes.push_back(j == k ? last : bucket);
    }
    const doc::Workload w = support::workload_at(ready, bytes);
    const doc::Cluster c =
        support::two_rank_cluster(1e-5 * static_cast<double>(random.below(100)),
                                  1e-6 * static_cast<double>(1 + random.below(100)));
    const std::string size = std::to_string(bucket) + "B";
    const double simulated = support::step_s("ddp(first=" + size + ", bucket=" + size + ")", w, c);
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
    ASSERT_EQ(cost::buckets_of(in).size(), to_index(k)) << "seed " << seed;
    EXPECT_NEAR(simulated, exact, 1e-12 * exact) << "seed " << seed;
    EXPECT_GE(simulated, cost::overlapped_s(in) * (1 - 1e-12)) << "seed " << seed;
  }
}

// Zhang et al. 2020 on ResNet-50: a schedule worked by hand and the golden table.

const std::filesystem::path kShared = "../shared";
constexpr double kStep = 0.12808580219559176;

class Zhang2020 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = kShared / "data/per_gradient";
    if (!std::filesystem::exists(folder / "resnet50.bk.log"))
      GTEST_SKIP() << folder << " is absent";
    trace::InputFile log = trace::InputFile::open((folder / "resnet50.bk.log").string());
    workload_ = trace::read_per_gradient_log(
        log, {folder / "cuda_vec_add.log", kStep, trace::StepTimeCovers::step});
  }

  cost::CostModel model(double bits_per_s, double ratio = 1) const {
    doc::Cluster c;
    c.network.bandwidth_bytes_per_s = bits_per_s / 8;
    cost::CostOptions options;
    options.compression_ratio = ratio;
    options.add_table = std::make_shared<const cost::AddTable>(workload_.add_cost);
    return cost::CostModel(c, options);
  }
  doc::Plan plan(const cost::CostModel& m, int ranks) const {
    return plan::make_plan(workload_, m.cluster(), doc::parse_strategy("horovod"), ranks,
                           {.cost = m, .first_step = false});
  }

  doc::Workload workload_;
};

TEST_F(Zhang2020, FusesIntoTheTwelveBuckets) {
  const cost::CostModel m = model(25e9);
  std::vector<std::int64_t> bytes;
  const doc::Plan fused = plan(m, 16);
  for (const doc::Payload& b : fused.variants.back().buckets()) bytes.push_back(4 * b.elements);
  EXPECT_THAT(bytes, ::testing::ElementsAre(43896736, 24158208, 9994240, 11298816, 6574080, 1912832,
                                            1976320, 1383424, 347648, 281600, 201216, 203008));
}

TEST_F(Zhang2020, WorkedScheduleOfSixteenRanksAt25Gbit) {
  // Ends of the twelve all-reduces in ms since the start of backward, to 4 decimals.
  const std::vector<double> finish_ms = {32.1044, 46.7769, 52.9277, 59.8617, 63.9609, 65.2502,
                                         66.5773, 67.5503, 67.9015, 68.2110, 68.4723, 68.7347};
  const cost::CostModel m = model(25e9);
  const doc::Plan p = plan(m, 16);
  Prices prices(m, 16);
  TaskTimes times;
  Unrolled step;
  lay_out_steps(p, first_of_cycle(p), 1, step);
  run_steps(step, prices, times);
  const double forward = times.end[0];
  std::size_t bucket = 0;
  for (std::uint32_t i = 0; i < p.variants.back().tasks.size(); ++i) {
    if (p.variants.back().tasks[i].kind != doc::TaskKind::all_reduce) continue;
    EXPECT_NEAR((times.end[i] - forward) * 1e3, finish_ms.at(bucket++), 1e-4);
  }
  EXPECT_EQ(bucket, finish_ms.size());
  EXPECT_NEAR((simulate(p, m).step_s - kStep) * 1e3, 3.9281, 1e-4);
}

TEST_F(Zhang2020, SecondCheckOfSixtyFourRanksAt10Gbit) {
  const cost::CostModel m = model(10e9);
  EXPECT_NEAR((simulate(plan(m, 64), m).step_s - kStep) * 1e3, 109.2203, 1e-4);
}

TEST_F(Zhang2020, EveryCellOfTheGoldenTable) {
  std::ifstream table(kShared / "checks/golden_resnet50.csv");
  if (!table) GTEST_SKIP() << "the golden table is absent";
  std::string line;
  std::getline(table, line);
  int cells = 0;
  while (std::getline(table, line)) {
    int ranks = 0;
    double bandwidth = 0, ratio = 0, expected = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d,%lf,%lf,%lf", &ranks, &bandwidth, &ratio, &expected),
              4);
    const cost::CostModel m = model(bandwidth, ratio);
    EXPECT_NEAR(kStep / simulate(plan(m, ranks), m).step_s, expected, 1e-4) << line;
    ++cells;
  }
  EXPECT_EQ(cells, 75);
}

TEST_F(Zhang2020, ScalingDependsOnBandwidthTimesRatioOnly) {
  for (const int ranks : {16, 32, 64}) {
    const cost::CostModel a = model(1e9, 10), b = model(10e9, 1);
    EXPECT_DOUBLE_EQ(simulate(plan(a, ranks), a).step_s, simulate(plan(b, ranks), b).step_s);
  }
}

}  // namespace
}  // namespace linerate::sim
