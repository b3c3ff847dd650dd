#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/cost/estimate.hpp"
#include "support/message_of.hpp"

namespace linerate::cost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

doc::Cluster flat(double bytes_per_s, double latency_s) {
  return {.network = {bytes_per_s, latency_s}};
}

/// T = alpha + beta S with an interval of 10 %.
doc::CollectiveCost measured(int ranks, int per_node, double alpha, double beta,
                             Collective what = Collective::all_reduce) {
  doc::CollectiveCost cost{.collective = what, .ranks = ranks, .ranks_per_node = per_node};
  cost.segments = {{0, 1'000'000'000, alpha, beta, 0.9, 1.1}};
  return cost;
}

double all_reduce_s(const doc::Cluster& c, std::int64_t bytes, int ranks,
                    const CostOptions& options = {}) {
  return CostModel(c, options).collective(Collective::all_reduce, bytes, ranks).seconds;
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
  doc::Cluster nodes = flat(10, 0);
  nodes.ranks_per_node = 4, nodes.node = doc::Link{1, 0};
  EXPECT_DOUBLE_EQ(all_reduce_s(nodes, 8, 8), 8 * (1.5 + 0.1));
  EXPECT_DOUBLE_EQ(all_reduce_s(nodes, 8, 4), 8 * 1.5);
}

// 1024 ranks, 20 us, 12.5 GB/s: a ring starts 2046 times, a tree 20 times, its chunks of 512 KiB
// filling each start with 42 us.
TEST(ClosedForm, RingOrTreeTakesTheShorterBySizeAndRanks) {
  const CostOptions either{.all_reduce = std::string(kRingOrTree)}, ring;
  const auto seconds = [](const CostOptions& options, int ranks, std::int64_t bytes) {
    return all_reduce_s(flat(12.5e9, 20e-6), bytes, ranks, options);
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
  const CostModel model(flat(1e9, 1e-3), {.all_reduce = std::string(kRingOrTree)});
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
  const std::vector<doc::AddCost> points = {{1, 3}};
  EXPECT_DOUBLE_EQ(
      all_reduce_s(flat(1, 0), 8, 2,
                   {.compression_ratio = 4, .add_table = std::make_shared<const AddTable>(points)}),
      2 + 3);
}

doc::Cluster fitted(double line_bytes_per_s) {
  return {.network = {line_bytes_per_s, 1e-6}, .collectives = {measured(2, 0, 1e-4, 1e-9)}};
}

// A megabyte takes 1.1 ms on 2 ranks, of which 0.1 are the start.
TEST(CostModel, AFitMovesToOtherNetworksAndRanks) {
  const auto seconds = [](const doc::Cluster& c, const CostOptions& options, int ranks = 2) {
    return all_reduce_s(c, 1'000'000, ranks, options);
  };
  const auto line = [](double rate) { return CostOptions{.bandwidth = BytesPerSecond{rate}}; };
  doc::Cluster c = fitted(1e9);
  // Another bandwidth scales the bulk and not the start.
  EXPECT_NEAR(seconds(c, line(2e9)), 1e-4 + 5e-4, 1e-12);
  EXPECT_TRUE(CostModel(c, line(2e9)).collective(Collective::all_reduce, 1, 2).extrapolated);
  // On 11 ranks, too: start-up 10 * 100 us = 1 ms, bulk (20/11) / 1 * 1 ms, ten times that.
  EXPECT_NEAR(seconds(c, line(1e8), 11), 1e-3 + 10 * 20.0 / 11 * 1e-3, 1e-9);
  // A latency is added per message step: 2 (n-1) = 2 steps of 10 us more.
  EXPECT_NEAR(seconds(c, {.latency = Seconds{11e-6}}), 1.1e-3 + 2e-5, 1e-12);
  // The link inside the node bounds a faster network: 2 (n-1)/n S over 2 GB/s take 0.5 ms.
  c.node = doc::Link{2e9, 0};
  EXPECT_NEAR(seconds(c, line(1e10)), 1e-4 + 5e-4, 1e-12);
  // A lower latency saves no more than the start, and the bulk is left.
  c = fitted(1e9), c.network.latency_s = 1;
  EXPECT_NEAR(seconds(c, {.latency = Seconds{0}}), 1e-3, 1e-12);
  // Nobody knows what limited it: a faster network changes nothing, a slower one is a new limit.
  EXPECT_NEAR(seconds(fitted(0), line(1e12)), 1.1e-3, 1e-12);
  EXPECT_NEAR(seconds(fitted(0), line(1e8)), 1e-4 + 1e-2, 1e-12);
}

TEST(CostModel, ASlowerNetworkDoesNotMultiplyTheDoubtAboutTheStart) {
  // 2 -> 16 ranks is three doublings: +-10 % of the fit and 1.3 of the law; the start-up, 15 times
  // 100 us by a ring and 4 times by a tree, is no part of what a thousandth of the bandwidth
  // multiplies.
  const CostModel slower(fitted(1e9), {.bandwidth = BytesPerSecond{1e6}});
  const Estimate e = slower.collective(Collective::all_reduce, 1'000'000, 16);
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

TEST(CostModel, SaysWhichMeasurementAnswersAsAnAllReduceForItsHalves) {
  EXPECT_EQ(CostModel(fitted(1e9)).measured_ranks(Collective::all_reduce, 16), 2);
  EXPECT_EQ(CostModel(flat(1, 0)).measured_ranks(Collective::all_reduce, 16), std::nullopt);
  const CostModel model(fitted(1e9));
  for (const Collective half : {Collective::reduce_scatter, Collective::all_gather})
    EXPECT_NEAR(model.collective(half, 1'000'000, 2).seconds, 5.5e-4, 1e-12);
  EXPECT_TRUE(model.collective(Collective::all_gather, 1000, 2).extrapolated);
}

// 32 bytes gathered in 30 us and sums of 26 MB: 25 MiB are gathered as half of a sum, and what lies
// between is no more than a straight line from one to the other.
TEST(CostModel, ATableAnswersWithinThreeDoublingsOfItsSizes) {
  doc::Cluster c = fitted(1e9);
  c.collectives[0].samples = {{26e6, 26.1e-3}, {52e6, 52.1e-3}};
  doc::CollectiveCost gather{.collective = Collective::all_gather, .ranks = 2};
  gather.samples = {{32, 30e-6}}, gather.segments = {{0, 64, 0, 30e-6 / 32, 0.5, 2}};
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
  c.collectives = {measured(2, 0, 0, 1e-9)};
  EXPECT_NEAR(all_reduce_s(c, 0, 2), 40e-6, 1e-12);
  // As links alone have it: 6 steps on 64 ranks.
  EXPECT_NEAR(CostModel(flat(1e9, 20e-6)).collective(Collective::barrier, 0, 64).seconds, 120e-6,
              1e-12);
}

TEST(CostModel, ALineThatIsUnknownOrCarriesNothingIsRefusedAndNotFree) {
  EXPECT_THROW(all_reduce_s({}, 8, 2), InputError);
  EXPECT_EQ(all_reduce_s({}, 8, 1), 0);
  EXPECT_THROW(CostModel(flat(1e9, 0), {.bandwidth = BytesPerSecond{1e-300}}), UsageError);
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
  EXPECT_THAT(
      outlier_notes(model),
      ElementsAre(HasSubstr("reduce-scatter of 4.19 MB on 2 ranks, 8.00 ms against 4.29 ms")));
  EXPECT_NEAR(model.collective(Collective::reduce_scatter, 1 << 22, 2).seconds, 4.294e-3, 1e-6);
}

constexpr double kMiB = 1 << 20;

// p = 16, 10 Gbit/s, buckets of 25 MiB, T_comp = 65 ms, gamma = 1.07, epsilon 0.05.
AgarwalInput example(double last_bytes) {
  return {0.065, 3 * 25 * kMiB + last_bytes, 25 * kMiB, 16, {0, 8 / 10e9, 0}, 1.07, 0.05};
}

TEST(Agarwal2021, WorkedExample) {
  EXPECT_NEAR(ring_all_reduce(16, example(0).link)(25 * kMiB), 39.3216e-3, 1e-9);
  EXPECT_NEAR(required_ratio(example(25 * kMiB)).value(), 11.307, 5e-4);
  EXPECT_NEAR(required_ratio(example(kMiB)).value(), 1.637, 5e-4);
}

// Time of the overlapped exchange with every bucket r times smaller, written down on its own.
double at_ratio(const AgarwalInput& in, double r) {
  const Line ring = ring_all_reduce(in.ranks, in.link);
  const double full = std::max(1.0, std::ceil(in.gradient_bytes / in.bucket_bytes)) - 1;
  const double last = in.gradient_bytes - full * in.bucket_bytes;
  return std::max(in.gamma * in.backward_s, full * ring(in.bucket_bytes / r)) + ring(last / r);
}

TEST(Agarwal2021, RequiredRatioIsTheSmallestThatSuffices) {
  int infeasible = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    std::uint64_t counter = 0;
    const auto unit = [&] { return random_unit(seed, counter++); };
    AgarwalInput in{0.01 + unit(),
                    kMiB * (1 + 500 * unit()),
                    kMiB * (1 + 50 * unit()),
                    2 + static_cast<int>(random_below(seed, counter++, 100)),
                    {seed % 2 ? 1e-4 * unit() : 0, 1e-10 + 1e-8 * unit(), 0},
                    1 + unit() / 5,
                    0.01 + unit() / 5};
    const double allowed = (1 + in.epsilon) * in.gamma * in.backward_s;
    const std::optional<double> r = required_ratio(in);
    if (!r) {
      ++infeasible;
      EXPECT_GT(at_ratio(in, 1e15), allowed * (1 - 1e-9)) << "seed " << seed;
      continue;
    }
    EXPECT_LE(at_ratio(in, *r), allowed * (1 + 1e-9)) << "seed " << seed;
    if (*r > 1) {
      EXPECT_GT(at_ratio(in, *r * (1 - 1e-6)), allowed * (1 - 1e-9)) << "seed " << seed;
    }
  }
  EXPECT_GT(infeasible, 0);
}

TEST(Agarwal2021, BucketsAreThePapersOrThoseThatAreGiven) {
  AgarwalInput in = example(5 * kMiB);
  EXPECT_THAT(buckets_of(in), ElementsAre(25 * kMiB, 25 * kMiB, 25 * kMiB, 5 * kMiB));
  AgarwalInput given = in;
  given.buckets = {kMiB, 54 * kMiB, 24 * kMiB, kMiB};
  const Line ring = ring_all_reduce(in.ranks, in.link);
  EXPECT_DOUBLE_EQ(overlapped_s(given), std::max(1.07 * 0.065, ring(79 * kMiB)) + ring(kMiB));
  EXPECT_LT(required_ratio(given).value(), required_ratio(in).value());
  // Halves on the wire are a ratio of 2 for nothing.
  given.wire_share = 0.5;
  EXPECT_DOUBLE_EQ(overlapped_s(given), std::max(1.07 * 0.065, ring(39.5 * kMiB)) + ring(kMiB / 2));
}

TEST(Agarwal2021, EncodeBudgetIsWhereCompressionBreaksEven) {
  AgarwalInput in = example(25 * kMiB);
  for (const bool gathers : {false, true}) {
    in.gathers = gathers;
    const double budget = encode_budget_s(in, 4);
    EXPECT_NEAR(compressed_s(in, 4, budget), overlapped_s(in), 1e-12);
  }
}

// Where ranks sit: measurements inside a node and across nodes, and links beyond them; line rates;
// rank counts between measured ones; 16-bit sums; shared cores.

constexpr double kBytes = 8e6;

/// Nodes of eight; 100 us + 10 ps a byte inside, measured, and a network of 1 GB/s that was given.
doc::Cluster nodes_of_eight(double network_bytes_per_s) {
  doc::Cluster c{.name = "dgx", .ranks = 8, .ranks_per_node = 8, .network = {network_bytes_per_s}};
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
  EXPECT_THAT(support::message_of<InputError>([&] { return at(c, 16); }),
              HasSubstr("dgx: was measured inside nodes of 8 ranks, and 16 ranks need a network "
                        "between nodes; give --bandwidth"));
  const CostOptions given{.bandwidth = BytesPerSecond{1e9}};
  EXPECT_NEAR(at(c, 16, given).seconds, 15e-3, 1e-9);   // 2 * 15/16 * 8 MB
  EXPECT_NEAR(at(c, 8, given).seconds, 180e-6, 1e-12);  // the network is not inside
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
  doc::Cluster c{.network = {1e9}, .collectives = {ring(4), ring(16)}};
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
  const doc::Cluster c{.network = {.bandwidth_bytes_per_s = 7.5e9, .line_rate_bytes_per_s = 12.5e9},
                       .collectives = {measured(2, 0, 0, 1 / 7.5e9)}};
  const CostOptions same{.bandwidth = BytesPerSecond{12.5e9}};
  const CostOptions half{.bandwidth = BytesPerSecond{6.25e9}};
  EXPECT_DOUBLE_EQ(at(c, 2, same).seconds, at(c, 2).seconds);
  EXPECT_FALSE(at(c, 2, same).extrapolated);
  EXPECT_NEAR(at(c, 2, half).seconds, 2 * at(c, 2).seconds, 1e-12);
}

TEST(LineRate, NothingIsQuickerThanTheLine) {
  // A table that a cache or a wrong unit made too quick: 8 ranks, 14/8 S at 1 GB/s at least.
  const doc::Cluster c{.network = {.line_rate_bytes_per_s = 1e9},
                       .collectives = {measured(8, 0, 0, 1e-12)}};
  const Estimate e = at(c, 8);
  EXPECT_NEAR(e.seconds, 14e-3, 1e-12);
  EXPECT_NEAR(e.low, 14e-3, 1e-12);
  for (const double rate : {1e6, 1e9, 1e12})
    EXPECT_GE(at(c, 8, {.bandwidth = BytesPerSecond{rate}}).low,
              1.75 * kBytes / rate * (1 - 1e-12));
}

// f32 on 2 ranks at 1 ns a byte and f16 on 4 at 5: f32 on 3 and 4 ranks goes by the former alone.
TEST(CostModel, TablesOf16BitDoNotPriceF32) {
  doc::Cluster c{.collectives = {measured(2, 0, 0, 1e-9), measured(4, 0, 0, 5e-9)}};
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
  const doc::Cluster one = flat(1e9, 1e-3);
  doc::Cluster nodes = one;
  nodes.ranks_per_node = 2, nodes.node = doc::Link{100e9, 0};
  const CostOptions halving{.all_reduce = "halving-doubling"};
  for (const Collective what : {Collective::reduce_scatter, Collective::all_gather})
    EXPECT_NEAR(at(one, 16, halving, what).seconds, 4e-3 + 7.5e-3, 1e-9);  // log2 16 steps, 15/16 S
  // 8 nodes: 6 steps in place of 14.
  EXPECT_NEAR(at(nodes, 16).seconds - at(nodes, 16, halving).seconds, 8e-3, 1e-9);
}

TEST(HalfSums, CostWhatTheClusterSaysWhereNoTableOfTheTypeIs) {
  // Gloo on 2 ranks: half of the array is added, 1 ns a byte more than f32.
  doc::Cluster c{.collectives = {measured(2, 0, 0, 1e-9)}, .half_sum_s_per_byte = 1e-9};
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
  const doc::Cluster c{.ranks = 2, .network = {1e9}, .cores = 2};
  EXPECT_THAT(collective_times(c, Collective::all_reduce, {Bytes{8}}, {4}).notes,
              ElementsAre(HasSubstr("4 ranks share 2 cores")));
  EXPECT_THAT(collective_times(c, Collective::all_reduce, {Bytes{8}}, {2}).notes, IsEmpty());
}

}  // namespace
}  // namespace linerate::cost
