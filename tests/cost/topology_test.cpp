// Where ranks sit: measurements inside a node and across nodes, and links beyond them; line rates;
// rank counts between measured ones; 16-bit sums; shared cores.
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_model.hpp"

namespace linerate::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kBytes = 8e6;

/// T = alpha + beta S with an interval of 10 %.
doc::CollectiveCost measured(int ranks, int per_node, double alpha, double beta,
                             Collective what = Collective::all_reduce) {
  doc::CollectiveCost cost;
  cost.collective = what;
  cost.ranks = ranks;
  cost.ranks_per_node = per_node;
  cost.segments = {{0, 1'000'000'000, alpha, beta, 0.9, 1.1}};
  return cost;
}

/// Nodes of eight; 100 us + 10 ps a byte inside, measured, and a network of 1 GB/s that was given.
doc::Cluster nodes_of_eight(double network_bytes_per_s) {
  doc::Cluster c;
  c.name = "dgx";
  c.ranks = 8, c.ranks_per_node = 8;
  c.network.bandwidth_bytes_per_s = network_bytes_per_s;
  c.collectives = {measured(8, 8, 100e-6, 10e-12)};
  return c;
}

Estimate at(const doc::Cluster& c, int ranks, const CostOptions& options = {},
            Collective what = Collective::all_reduce) {
  return CostModel(c, options).collective(what, static_cast<std::int64_t>(kBytes), ranks);
}

TEST(Topology, BeyondAMeasuredNodeTheLinksArePriced) {
  // 64 ranks, 8 nodes: 2 * 7/8 * 8 MB inside at 100 GB/s, and between nodes at 1 GB/s. Whether
  // the table or the Cluster says that eight share a node.
  doc::Cluster c = nodes_of_eight(1e9);
  c.node = doc::Link{100e9, 0};
  for (const int per_node : {8, 0}) {
    c.collectives[0].ranks_per_node = per_node;
    EXPECT_NEAR(at(c, 64).seconds, 140e-6 + 14e-3, 1e-9);
    EXPECT_EQ(CostModel(c).source(Collective::all_reduce, 64), PriceSource::links);
    EXPECT_FALSE(CostModel(c).fitted(Collective::all_reduce, 64));  // nobody measured the network
    EXPECT_NEAR(at(c, 8).seconds, 180e-6, 1e-12);
    EXPECT_TRUE(CostModel(c).fitted(Collective::all_reduce, 8));
  }
  // A quicker network takes no less than one node was measured to take.
  c.network.bandwidth_bytes_per_s = 1e12;
  EXPECT_NEAR(at(c, 64).seconds, 180e-6, 1e-9);
  EXPECT_NEAR(cost_curve(CostModel(c), Collective::all_reduce, 64).seconds(kBytes), 180e-6, 1e-9);
}

TEST(Topology, WithoutANetworkNoMoreThanANodeIsPredicted) {
  const doc::Cluster c = nodes_of_eight(0);
  EXPECT_FALSE(CostModel(c).can_price(Collective::all_reduce, 16));
  try {
    at(c, 16);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("dgx: was measured inside nodes of 8 ranks, and 16 ranks need "
                                    "a network between nodes; give --bandwidth"));
  }
  CostOptions options;
  options.bandwidth = BytesPerSecond{1e9};
  EXPECT_NEAR(at(c, 16, options).seconds, 15e-3, 1e-9);   // 2 * 15/16 * 8 MB
  EXPECT_NEAR(at(c, 8, options).seconds, 180e-6, 1e-12);  // the network is not inside
}

TEST(Topology, TheOldWayToMeasureIsStillFlat) {
  // Neither the table nor the Cluster says where ranks sit.
  doc::Cluster c = nodes_of_eight(0);
  c.ranks_per_node = 1, c.collectives[0].ranks_per_node = 0;
  // 8 -> 16 ranks: steps 15/7, bytes a link (30/16) / (14/8) = 15/14.
  EXPECT_NEAR(at(c, 16).seconds, 100e-6 * 15 / 7 + 80e-6 * 15 / 14, 1e-9);
}

TEST(Topology, AMeasurementAcrossNodesAnswersBeforeTheLinks) {
  doc::Cluster c = nodes_of_eight(1e9);
  c.collectives.push_back(measured(64, 8, 200e-6, 1e-9));
  EXPECT_NEAR(at(c, 64).seconds, 200e-6 + 8e-3, 1e-12);
  EXPECT_NEAR(at(c, 8).seconds, 180e-6, 1e-12);
}

TEST(Topology, AllToAllSendsWhatLeavesTheNodeOverItsLine) {
  // 16 ranks on 2 nodes. Inside: 7/16 of the array at 100 GB/s. Between: half of each rank's
  // array, eight ranks on one line: 8 * 8/16 * 8 MB at 1 GB/s.
  doc::Cluster c = nodes_of_eight(1e9);
  c.node = doc::Link{100e9, 0};
  c.collectives = {measured(8, 8, 100e-6, 10e-12, Collective::all_to_all)};
  EXPECT_NEAR(at(c, 16, {}, Collective::all_to_all).seconds, 35e-6 + 32e-3, 1e-9);
}

TEST(Topology, BetweenMeasuredRankCountsBothAreBroughtThereByTheLaw) {
  // 4 and 16 ranks on one link: alpha per step 1 us, 2(n-1)/n S at 1 GB/s. 8 ranks lie on both
  // laws.
  const auto ring = [](int n) { return measured(n, 0, 2e-6 * (n - 1), 2e-9 * (n - 1) / n); };
  doc::Cluster c;
  c.network.bandwidth_bytes_per_s = 1e9;
  c.collectives = {ring(4), ring(16)};
  EXPECT_NEAR(at(c, 8).seconds, 14e-6 + 14e-3, 1e-9);
  EXPECT_EQ(CostModel(c).source(Collective::all_reduce, 8), PriceSource::interpolated);
  // Twice as slow at 16 ranks: 4 of 12 more steps, 2 of 3 thirds of what a link carries more.
  c.collectives[1] = measured(16, 0, 2 * 30e-6, 2 * 1.875e-9);
  EXPECT_NEAR(at(c, 8).seconds, (6e-6 + 54e-6 / 3) + (12e-3 + 18e-3 * 2 / 3), 1e-9);
  EXPECT_LE(at(c, 8).low, 14e-3);
  EXPECT_GE(at(c, 8).high, 28e-3);
  EXPECT_NEAR(at(c, 4).seconds, 6e-6 + 12e-3, 1e-9);
}

TEST(LineRate, AnotherBandwidthScalesByLineRates) {
  // 60 % of a line of 12.5 GB/s, asked again for that line: nothing changes; for half of it, the
  // bulk doubles.
  doc::Cluster c;
  c.network = {.bandwidth_bytes_per_s = 7.5e9, .latency_s = 0, .line_rate_bytes_per_s = 12.5e9};
  c.collectives = {measured(2, 0, 0, 1 / 7.5e9)};
  CostOptions same, half;
  same.bandwidth = BytesPerSecond{12.5e9};
  half.bandwidth = BytesPerSecond{6.25e9};
  EXPECT_DOUBLE_EQ(at(c, 2, same).seconds, at(c, 2).seconds);
  EXPECT_FALSE(at(c, 2, same).extrapolated);
  EXPECT_NEAR(at(c, 2, half).seconds, 2 * at(c, 2).seconds, 1e-12);
}

TEST(LineRate, NothingIsQuickerThanTheLine) {
  // A table that a cache or a wrong unit made too quick: 8 ranks, 14/8 S at 1 GB/s at least.
  doc::Cluster c;
  c.network = {.bandwidth_bytes_per_s = 0, .latency_s = 0, .line_rate_bytes_per_s = 1e9};
  c.collectives = {measured(8, 0, 0, 1e-12)};
  const Estimate e = at(c, 8);
  EXPECT_NEAR(e.seconds, 14e-3, 1e-12);
  EXPECT_NEAR(e.low, 14e-3, 1e-12);
  for (const double rate : {1e6, 1e9, 1e12}) {
    CostOptions options;
    options.bandwidth = BytesPerSecond{rate};
    EXPECT_GE(at(c, 8, options).low, 1.75 * kBytes / rate * (1 - 1e-12));
  }
}

// f32 on 2 ranks at 1 ns a byte and f16 on 4 at 5: f32 on 3 and 4 ranks goes by the former alone.
TEST(CostModel, TablesOf16BitDoNotPriceF32) {
  doc::Cluster c;
  c.collectives = {measured(2, 0, 0, 1e-9), measured(4, 0, 0, 5e-9)};
  c.collectives.back().dtype = DType::f16;
  const auto seconds = [&](int ranks, DType dtype) {
    return CostModel(c).collective(Collective::all_reduce, 8'000'000, ranks, dtype).seconds;
  };
  EXPECT_NEAR(seconds(4, DType::f32), 1.5 * 8e-3, 1e-9);
  EXPECT_NEAR(seconds(3, DType::f32), 4. / 3 * 8e-3, 1e-9);
  EXPECT_NEAR(seconds(4, DType::f16), 40e-3, 1e-9);
}

TEST(CostModelForms, TheHalvesOfAnAlgorithmTakeAsLongAsItself) {
  const LinkCost link{1e-5, 1e-9, 1e-10};
  for (const auto& form : all_reduce_forms().lines())
    for (const int n : {2, 5, 16})
      EXPECT_DOUBLE_EQ(reduce_scatter_half(form.make, n, link)(kBytes) +
                           all_gather_half(form.make, n, link)(kBytes),
                       form.make(n, link)(kBytes))
          << form.name;
  EXPECT_DOUBLE_EQ(reduce_scatter_half(ring_all_reduce, 5, link)(kBytes),
                   ring_reduce_scatter(5, link)(kBytes));
  EXPECT_DOUBLE_EQ(all_gather_half(ring_all_reduce, 5, link)(kBytes),
                   ring_all_gather(5, link)(kBytes));
}

TEST(CostModelForms, AnAlgorithmActsOnHalvesAndBetweenNodes) {
  doc::Cluster flat;
  flat.network = {1e9, 1e-3};
  doc::Cluster nodes = flat;
  nodes.ranks_per_node = 2;
  nodes.node = doc::Link{100e9, 0};
  CostOptions halving;
  halving.all_reduce = "halving-doubling";
  for (const Collective what : {Collective::reduce_scatter, Collective::all_gather})
    EXPECT_NEAR(at(flat, 16, halving, what).seconds, 4e-3 + 7.5e-3,
                1e-9);  // log2 16 steps, 15/16 S
  // 8 nodes: 6 steps in place of 14.
  EXPECT_NEAR(at(nodes, 16).seconds - at(nodes, 16, halving).seconds, 8e-3, 1e-9);
}

TEST(HalfSums, CostWhatTheClusterSaysWhereNoTableOfTheTypeIs) {
  // Gloo on 2 ranks: half of the array is added, 1 ns a byte more than f32.
  doc::Cluster c;
  c.half_sum_s_per_byte = 1e-9;
  c.collectives = {measured(2, 0, 0, 1e-9)};
  const auto seconds = [&](Collective what, DType dtype) {
    return CostModel(c).collective(what, 8'000'000, 2, dtype).seconds;
  };
  EXPECT_NEAR(seconds(Collective::all_reduce, DType::f16), 8e-3 + 4e-3, 1e-9);
  EXPECT_NEAR(seconds(Collective::all_reduce, DType::bf16), 12e-3, 1e-9);
  EXPECT_NEAR(seconds(Collective::all_reduce, DType::f32), 8e-3, 1e-9);
  EXPECT_NEAR(seconds(Collective::all_gather, DType::f16), 4e-3, 1e-9);  // adds nothing
  c.collectives.push_back(measured(2, 0, 0, 3e-9));
  c.collectives.back().dtype = DType::f16;
  EXPECT_NEAR(seconds(Collective::all_reduce, DType::f16), 24e-3, 1e-9);
}

TEST(SharedCores, MoreRanksThanCoresIsSaid) {
  doc::Cluster c;
  c.ranks = 2, c.cores = 2;
  c.network.bandwidth_bytes_per_s = 1e9;
  EXPECT_THAT(collective_times(c, Collective::all_reduce, {Bytes{8}}, {4}).notes,
              ElementsAre(HasSubstr("4 ranks share 2 cores")));
  EXPECT_THAT(collective_times(c, Collective::all_reduce, {Bytes{8}}, {2}).notes, IsEmpty());
}

}  // namespace
}  // namespace linerate::cost
