#include "linerate/cost/cost_model.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/estimate.hpp"

namespace linerate::cost {
namespace {

doc::Cluster flat(double bytes_per_s, double latency_s) {
  doc::Cluster c;
  c.network = {bytes_per_s, latency_s};
  return c;
}

TEST(ClosedForm, RingIsTwiceTheScatter) {
  // n = 4: 2 * 3 steps of 1 us, 2 * 3/4 * 4 MB at 1 GB/s = 6 ms; half of both for each half.
  const LinkCost link{1e-6, 1e-9, 0};
  EXPECT_DOUBLE_EQ(ring_all_reduce(4, link)(4e6), 6e-6 + 6e-3);
  EXPECT_DOUBLE_EQ(ring_reduce_scatter(4, link)(4e6), 3e-6 + 3e-3);
  EXPECT_DOUBLE_EQ(ring_all_gather(4, link)(4e6), 3e-6 + 3e-3);
}

TEST(ClosedForm, TreesCountSteps) {
  // ceil(log2 5) = 3.
  const LinkCost link{1, 0.5, 0.25};
  EXPECT_DOUBLE_EQ(recursive_doubling_all_reduce(5, link)(2), 3 * (1 + 2 * 0.75));
  EXPECT_DOUBLE_EQ(binomial_broadcast(5, link)(2), 3 * (1 + 1));
  EXPECT_DOUBLE_EQ(parameter_server_all_reduce(5, link)(2), 2 * 4 * (1 + 1) + 4 * 2 * 0.25);
}

TEST(ClosedForm, OneRankIsFree) {
  for (const auto& line : all_reduce_forms().lines())
    EXPECT_EQ(line.make(1, {1, 1, 1})(100), 0) << line.name;
}

TEST(ClosedForm, HierarchicalSharesTheNetworkLink) {
  // 2 nodes of 4: inside 3/4 S twice at 1 s/B; between, S/4 on a quarter of 0.1 s/B's link:
  // 2 * (S/4) * 1/2 * 0.4 = S * 0.1.
  const Line line = hierarchical_all_reduce(8, 4, {0, 1, 0}, {0, 0.1, 0});
  EXPECT_DOUBLE_EQ(line(8), 8 * (1.5 + 0.1));
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce(4, 4, {0, 1, 0}, {0, 0.1, 0})(8), 8 * 1.5);
}

// 1024 ranks, 20 us, 12.5 GB/s: a ring starts 2046 times, a tree 20 times, its chunks of 512 KiB
// filling each start with 42 us.
TEST(ClosedForm, RingOrTreeTakesTheShorterBySizeAndRanks) {
  CostOptions either, ring;
  either.all_reduce = kRingOrTree;
  const auto seconds = [](const CostOptions& options, int ranks, std::int64_t bytes) {
    return CostModel(flat(12.5e9, 20e-6), options)
        .collective(Collective::all_reduce, bytes, ranks)
        .seconds;
  };
  const double fill = 20e-6 + 524288 / 12.5e9;
  EXPECT_NEAR(seconds(either, 1024, 26'214'400), 20 * fill + 2 * 26'214'400 / 12.5e9, 1e-12);
  EXPECT_NEAR(seconds(ring, 1024, 26'214'400),
              2046 * 20e-6 + 2 * 1023. / 1024 * 26'214'400 / 12.5e9, 1e-12);
  EXPECT_NEAR(seconds(either, 1024, 1000), 20 * (20e-6 + 1000 / 12.5e9), 1e-12);
  for (const int ranks : {2, 3, 4, 64, 1024})
    for (const std::int64_t bytes : {1'000LL, 1'000'000LL, 1'000'000'000'000LL})
      EXPECT_LE(seconds(either, ranks, bytes), seconds(ring, ranks, bytes));
  EXPECT_EQ(seconds(either, 4, 1'000'000'000), seconds(ring, 4, 1'000'000'000));
}

TEST(ClosedForm, ATreeEndsWhereTheRingGetsShorter) {
  CostOptions either;
  either.all_reduce = kRingOrTree;
  const CostModel model(flat(1e9, 1e-3), either);
  const CostCurve curve = cost_curve(model, Collective::all_reduce, 8);
  const double end = curve.tree_up_to();
  ASSERT_GT(end, 0);
  const auto is_ring = [&](double bytes) { return curve.seconds(bytes) == curve.line(bytes); };
  EXPECT_FALSE(is_ring(0.99 * end));
  EXPECT_TRUE(is_ring(1.01 * end));
  EXPECT_EQ(cost_curve(model, Collective::reduce_scatter, 8).tree_up_to(),
            0);  // NCCL has rings alone
}

TEST(AddTable, InterpolatesAndClamps) {
  const std::vector<doc::AddCost> points = {{40, 2}, {80, 1}, {160, 5}};
  const AddTable table(points);
  EXPECT_DOUBLE_EQ(table.seconds(0), 2);
  EXPECT_DOUBLE_EQ(table.seconds(60), 1.5);
  EXPECT_DOUBLE_EQ(table.seconds(120), 3);
  EXPECT_DOUBLE_EQ(table.seconds(1e9), 5);
  const std::vector<doc::AddCost> falling = {{80, 1}, {40, 2}};
  EXPECT_THROW(AddTable{falling}, UsageError);
}

TEST(CostModel, CompressionDividesTransfersButNotAdditions) {
  // n = 2, 1 B/s, S = 8: 8 s on the wire, a quarter of it at ratio 4; AddEst(4) = 3 s stays.
  CostOptions options;
  options.compression_ratio = 4;
  const std::vector<doc::AddCost> points = {{1, 3}};
  options.add_table = std::make_shared<const AddTable>(points);
  EXPECT_DOUBLE_EQ(CostModel(flat(1, 0), options).collective(Collective::all_reduce, 8, 2).seconds,
                   2 + 3);
}

TEST(CostModel, UnknownBandwidthIsAnErrorNotAFreeNetwork) {
  EXPECT_THROW(
      static_cast<void>(CostModel(doc::Cluster{}).collective(Collective::all_reduce, 8, 2)),
      InputError);
  EXPECT_EQ(CostModel(doc::Cluster{}).collective(Collective::all_reduce, 8, 1).seconds, 0);
}

doc::Cluster fitted(double line_bytes_per_s) {
  doc::Cluster c = flat(line_bytes_per_s, 1e-6);
  doc::CollectiveCost fit;
  fit.ranks = 2;
  fit.segments = {{1, 1'000'000'000, 1e-4, 1e-9, 0.9, 1.1}};
  c.collectives = {fit};
  return c;
}

double seconds(const doc::Cluster& c, CostOptions options,
               Collective what = Collective::all_reduce) {
  return CostModel(c, std::move(options)).collective(what, 1'000'000, 2).seconds;
}

TEST(CostModel, OtherBandwidthScalesTheBulkAndNotTheStart) {
  // alpha 100 us + 1 ms at 1 GB/s; at twice the rate 100 us + 0.5 ms.
  CostOptions options;
  options.bandwidth = BytesPerSecond{2e9};
  EXPECT_NEAR(seconds(fitted(1e9), options), 6e-4, 1e-12);
  EXPECT_TRUE(
      CostModel(fitted(1e9), options).collective(Collective::all_reduce, 1, 2).extrapolated);
}

TEST(CostModel, TheLinkInsideTheNodeBoundsAFasterNetwork) {
  // 10 x the network, yet 2 (n-1)/n S over 2 GB/s inside take 0.5 ms.
  doc::Cluster c = fitted(1e9);
  c.node = doc::Link{2e9, 0};
  CostOptions options;
  options.bandwidth = BytesPerSecond{1e10};
  EXPECT_NEAR(seconds(c, options), 1e-4 + 5e-4, 1e-12);
}

TEST(CostModel, UnknownLineRateOfAMeasurementPromisesNothing) {
  // Nobody knows what limited it: a faster network changes nothing, a slower one is a new limit.
  CostOptions faster, slower;
  faster.bandwidth = BytesPerSecond{1e12};
  slower.bandwidth = BytesPerSecond{1e8};
  EXPECT_NEAR(seconds(fitted(0), faster), 1.1e-3, 1e-12);
  EXPECT_NEAR(seconds(fitted(0), slower), 1e-4 + 1e-2, 1e-12);
}

TEST(CostModel, LatencyIsAddedPerMessageStep) {
  // 2 (n-1) = 2 steps of 10 us more.
  CostOptions options;
  options.latency = Seconds{11e-6};
  EXPECT_NEAR(seconds(fitted(1e9), options), 1.1e-3 + 2e-5, 1e-12);
}

TEST(CostModel, ALowerLatencySavesNoMoreThanTheStart) {
  // 1023 times the start-up of 2 ranks; 2 * 1023 steps of 1 us less are 2.0 ms, the start 102 ms.
  // On a fit whose start-up is below steps * latency nothing becomes negative.
  doc::Cluster c = fitted(1e9);
  c.network.latency_s = 1;
  CostOptions options;
  options.latency = Seconds{0};
  EXPECT_NEAR(seconds(c, options), 1e-3, 1e-12);  // the bulk alone
}

TEST(CostModel, AtOtherRankCountsOnlyTheBulkScalesWithTheBandwidth) {
  // 2 -> 11 ranks: start-up 10 * 100 us = 1 ms, bulk (20/11) / 1 * 1 ms. A tenth of the bandwidth
  // multiplies the bulk alone.
  CostOptions options;
  options.bandwidth = BytesPerSecond{1e8};
  const double there =
      CostModel(fitted(1e9), options).collective(Collective::all_reduce, 1'000'000, 11).seconds;
  EXPECT_NEAR(there, 1e-3 + 10 * 20.0 / 11 * 1e-3, 1e-9);
}

TEST(CostModel, ASlowerNetworkDoesNotMultiplyTheDoubtAboutTheStart) {
  // 2 -> 16 ranks is three doublings: +-10 % of the fit and 1.3 of the law; the start-up, 15 times
  // 100 us by a ring and 4 times by a tree, is no part of what a thousandth of the bandwidth
  // multiplies.
  CostOptions options;
  options.bandwidth = BytesPerSecond{1e6};
  const Estimate e =
      CostModel(fitted(1e9), options).collective(Collective::all_reduce, 1'000'000, 16);
  EXPECT_GE(e.low, e.seconds * 0.9 / 1.3 * 0.99);
  EXPECT_LE(e.high, e.seconds * 1.1 * 1.3 * 1.01);
}

TEST(CostModel, NoCollectivePricedFromAnAllReduceBeatsItsLink) {
  // 8 ranks, all-reduce at a bus bandwidth of (14/8) / 1 ns = 1.75 GB/s: a broadcast of 1 GB is no
  // quicker than its bytes on that link.
  doc::Cluster c = fitted(1e9);
  c.collectives[0].ranks = 8;
  const double broadcast = CostModel(c).collective(Collective::broadcast, 1'000'000'000, 8).seconds;
  EXPECT_GE(broadcast, 1e9 / 1.75e9);
}

TEST(CostModel, SaysWhichMeasurementAnswers) {
  EXPECT_EQ(CostModel(fitted(1e9)).measured_ranks(Collective::all_reduce, 16), 2);
  EXPECT_EQ(CostModel(flat(1, 0)).measured_ranks(Collective::all_reduce, 16), std::nullopt);
}

TEST(CostModel, UnmeasuredHalvesComeFromTheAllReduce) {
  EXPECT_NEAR(seconds(fitted(1e9), {}, Collective::reduce_scatter), 5.5e-4, 1e-12);
  EXPECT_NEAR(seconds(fitted(1e9), {}, Collective::all_gather), 5.5e-4, 1e-12);
  EXPECT_TRUE(CostModel(fitted(1e9)).collective(Collective::all_gather, 1000, 2).extrapolated);
}

// 32 bytes gathered in 30 us and sums of 26 MB: 25 MiB are gathered as half of a sum, and what lies
// between is no more than a straight line from one to the other.
TEST(CostModel, ATableAnswersWithinThreeDoublingsOfItsSizes) {
  doc::Cluster c = fitted(1e9);
  c.collectives[0].samples = {{26e6, 26.1e-3}, {52e6, 52.1e-3}};
  doc::CollectiveCost gather;
  gather.collective = Collective::all_gather;
  gather.ranks = 2;
  gather.samples = {{32, 30e-6}};
  gather.segments = {{0, 64, 0, 30e-6 / 32, 0.5, 2}};
  c.collectives.push_back(gather);
  const CostModel model(c);
  const auto gathered = [&](std::int64_t bytes) {
    return model.collective(Collective::all_gather, bytes, 2).seconds;
  };
  EXPECT_NEAR(gathered(32), 30e-6, 1e-12);
  EXPECT_NEAR(gathered(26'214'400), (100e-6 + 26'214'400e-9) / 2, 1e-9);
  EXPECT_NEAR(gathered(13'000'016), (30e-6 + 13.05e-3) / 2, 1e-9);
  EXPECT_TRUE(model.collective(Collective::all_gather, 13'000'000, 2).extrapolated);
}

TEST(CostModel, NothingIsFree) {
  // Half of an all-reduce's two steps.
  EXPECT_NEAR(CostModel(fitted(1e9)).collective(Collective::barrier, 0, 2).seconds, 50e-6, 1e-12);
  // No start-up was seen, but the network has a latency.
  doc::Cluster c = flat(1e9, 20e-6);
  c.collectives = {fitted(1e9).collectives[0]};
  c.collectives[0].segments = {{0, 1'000'000, 0, 1e-9, 0.9, 1.1}};
  EXPECT_NEAR(CostModel(c).collective(Collective::all_reduce, 0, 2).seconds, 40e-6, 1e-12);
  // As links alone have it: 6 steps on 64 ranks.
  EXPECT_NEAR(CostModel(flat(1e9, 20e-6)).collective(Collective::barrier, 0, 64).seconds, 120e-6,
              1e-12);
}

TEST(CostModel, ALineThatCarriesNothingIsRefused) {
  CostOptions options;
  options.bandwidth = BytesPerSecond{1e-300};
  EXPECT_THROW(CostModel(flat(1e9, 0), options), UsageError);
  EXPECT_THROW(CostModel(flat(1e-300, 0)), InputError);
}

// Two ranks, a reduce-scatter slower than the all-reduce that holds it.
TEST(CostModel, AMeasurementThatOthersContradictIsNamed) {
  doc::Cluster c = fitted(1e9);
  doc::CollectiveCost& whole = c.collectives[0];
  for (double bytes = 1 << 20; bytes < 1e9; bytes *= 2)
    whole.samples.push_back({bytes, 1e-4 + 1e-9 * bytes});
  EXPECT_TRUE(outlier_notes(CostModel(c)).empty());
  doc::CollectiveCost half = whole;
  half.collective = Collective::reduce_scatter;
  half.samples = {{1 << 22, 8e-3}};
  half.segments = {{0, 1 << 23, 0, 8e-3 / (1 << 22), 0.9, 1.1}};
  c.collectives.push_back(half);
  const CostModel model(c);
  EXPECT_THAT(outlier_notes(model),
              testing::ElementsAre(testing::HasSubstr(
                  "reduce-scatter of 4.19 MB on 2 ranks, 8.00 ms against 4.29 ms")));
  EXPECT_NEAR(model.collective(Collective::reduce_scatter, 1 << 22, 2).seconds, 4.294e-3, 1e-6);
}

}  // namespace
}  // namespace linerate::cost
