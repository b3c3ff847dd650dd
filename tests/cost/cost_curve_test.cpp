// Cost curves: their straight pieces, and what is fitted to measurements.
#include "linerate/cost/cost_curve.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "linerate/core/random.hpp"

namespace linerate::cost {
namespace {

constexpr double kMost = 1e8;

/// At the pieces' own ends, just behind them, and between.
void expect_equal(const CostCurve& curve) {
  const std::vector<AffinePiece> pieces = affine_pieces(curve, kMost);
  EXPECT_GE(pieces.back().to_bytes, kMost);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const AffinePiece& p = pieces[k];
    EXPECT_EQ(p.from_bytes, k > 0 ? pieces[k - 1].to_bytes : 0);
    for (int i = 1; i <= 40; ++i) {
      const double bytes = p.from_bytes + i / 40.0 * (p.to_bytes - p.from_bytes);
      const double expected = curve.seconds(bytes);
      EXPECT_NEAR(p.alpha_s + p.beta_s_per_byte * bytes, expected, 1e-9 * expected + 1e-15)
          << bytes << " bytes";
    }
  }
}

TEST(AffinePieces, OfALineAreOneAndOfAnAddTableThoseOfTheTable) {
  const CostCurve line{.line = {2e-5, 1e-9}};
  EXPECT_EQ(affine_pieces(line, kMost).size(), 1u);
  expect_equal(line);
  std::vector<doc::AddCost> points;
  for (int k = 10; k < 24; ++k)
    points.push_back(
        {std::pow(2.0, k), 1e-5 + 4e-6 * random_unit(1, static_cast<std::uint64_t>(k))});
  const AddTable table(points);
  const CostCurve curve{.line = {2e-5, 1e-9}, .add = &table, .add_steps = 3, .add_share = 0.25};
  EXPECT_EQ(affine_pieces(curve, kMost).size(), table.pieces().size());
  expect_equal(curve);
}

/// Its first line falls below zero towards small sizes, as fits do; jumps both ways.
doc::CollectiveCost table() {
  doc::CollectiveCost cost;
  cost.ranks = 4;
  std::int64_t from = 512;
  for (std::uint64_t k = 0; k < 14; ++k, from *= 2) {
    const double beta = 4e-9 * random_unit(7, 2 * k);
    const double alpha = k == 0 ? -200 * beta : 5e-5 * random_unit(7, 2 * k + 1);
    cost.segments.push_back({from, from * 2, alpha, beta, 1, 1});
  }
  return cost;
}

CostCurve curve_of(const TableLaw& law, int ranks, const FittedMove& move) {
  CostCurve curve;
  curve.fitted = FittedPart({Anchor(law, Collective::all_reduce)}, Collective::all_reduce, ranks);
  curve.fitted.set_move(move);
  return curve;
}

TEST(AffinePieces, OfFittedCostsFollowTheirJumpsAndBends) {
  const doc::CollectiveCost cost = table();
  const TableLaw law(cost);
  for (const int ranks : {1, 2, 4, 7, 64})
    for (const FittedMove& move :
         {FittedMove{}, FittedMove{-1e-5, 0.25, 1e-9, true}, FittedMove{3e-5, 3, 0, true}})
      expect_equal(curve_of(law, ranks, move));
}

/// A line far slower than the measured one makes rounding large next to the start-up: where it
/// looked like bends, there were 2^24 pieces, and advice on a slow network did not end.
TEST(AffinePieces, OfACostMovedToAnyBandwidthAreFew) {
  // As fitted to an all-reduce over loopback.
  const doc::CollectiveCost cost{
      .ranks = 2,
      .segments = {{0, 1024, 0.00015928597473578918, 2.3018406389977494e-10, 1, 1},
                   {1024, 32768, 0.00015952168321722255, 0, 1, 1},
                   {32768, 65536, -0.0002258681745763984, 1.1761165093799467e-08, 1, 1}}};
  const TableLaw law(cost);
  for (double slower = 1; slower < 1e8; slower *= std::sqrt(2.0)) {
    const CostCurve curve = curve_of(law, 2, {0, slower, 4e-10 * slower, true});
    EXPECT_LE(affine_pieces(curve, 65536).size(), 4 * cost.segments.size()) << slower;
    expect_equal(curve);
  }
}

// 4 ranks. 10 us + 1 ns/B up to 1000 B, then 9 us + 2 ns/B: both give 11 us at the border.
// Intervals 10 % and 20 %.
doc::CollectiveCost two_segments() {
  return {.ranks = 4,
          .segments = {{100, 1000, 10e-6, 1e-9, 0.9, 1.1}, {1000, 10000, 9e-6, 2e-9, 0.8, 1.2}},
          .samples = {{100, 10.1e-6}, {1000, 11e-6}, {10000, 29e-6}}};
}

Estimate on_ranks(const doc::CollectiveCost& cost, double bytes, int ranks) {
  const TableLaw law(cost);
  return FittedPart({Anchor(law, cost.collective)}, cost.collective, ranks).estimate(bytes);
}

TEST(Fitted, AnswersFromTheSegmentThatHoldsTheSize) {
  const Estimate e = evaluate(two_segments(), 2000);
  EXPECT_DOUBLE_EQ(e.seconds, 13e-6);  // 9 us + 2000 * 2 ns
  EXPECT_DOUBLE_EQ(e.low, 0.8 * 13e-6);
  EXPECT_DOUBLE_EQ(e.high, 1.2 * 13e-6);
  EXPECT_FALSE(e.extrapolated);
}

TEST(Fitted, WidensByItsOwnWidthPerDoublingBeyondTheMeasuredSizes) {
  const Estimate e = evaluate(two_segments(), 20000);  // one doubling beyond 10000
  EXPECT_DOUBLE_EQ(e.seconds, 49e-6);                  // 9 us + 20000 * 2 ns
  EXPECT_DOUBLE_EQ(e.high, 1.4 * 49e-6);               // 1 + 0.2 * (1 + 1)
  EXPECT_DOUBLE_EQ(e.low, 49e-6 / 1.5);                // 1 / 0.8 = 1 + 0.25, so 1 + 0.25 * (1 + 1)
  EXPECT_TRUE(e.extrapolated);
  // Far outside the low end is small but never zero.
  const Estimate far = evaluate(two_segments(), 1);
  EXPECT_GT(far.low, 0);
  EXPECT_LT(far.low, far.seconds);
}

TEST(Fitted, NeverFallsFasterThanTheBytesBelowTheSmallestSizeAndNotToNothing) {
  // A secant with alpha < 0: -5 us + 100 ns/B is 5 us at 100 B and negative at 25 B.
  const doc::CollectiveCost cost{.ranks = 4, .segments = {{100, 1000, -5e-6, 100e-9, 0.9, 1.1}}};
  EXPECT_DOUBLE_EQ(evaluate(cost, 25).seconds, 5e-6 / 4);
  EXPECT_DOUBLE_EQ(evaluate(cost, 0).seconds, 5e-6 / 8);
}

TEST(Fitted, MovesToOtherRankCountsByTheRingsLaw) {
  // 10000 B: 29 us, of it 10 us latency. 4 -> 8 ranks: steps 7/3, bytes per link (14/8) / (6/4) =
  // 7/6.
  const Estimate e = on_ranks(two_segments(), 10000, 8);
  EXPECT_NEAR(e.seconds, 10e-6 * 7 / 3 + 19e-6 * 7 / 6, 1e-15);
  EXPECT_TRUE(e.extrapolated);
  // A tree needs log2(8)/log2(4) = 3/2 of the latency: the interval reaches down to it, on by the
  // fit's own 20 % and by 10 % for one doubling of the ranks.
  EXPECT_NEAR(e.low, 0.8 * (10e-6 * 1.5 + 19e-6 * 7 / 6) / 1.1, 1e-15);
  EXPECT_NEAR(e.high, 1.2 * e.seconds * 1.1, 1e-15);
}

// Two nodes of 4, 1 GiB, as logs of GH200 nodes have them. At 162 GB/s of bus bandwidth no ring
// through PCIe did it: nodes count. 2 (N - 1) / N is 1 on two nodes, 3/2 on 4, 31/16 on 32.
TEST(Fitted, TablesQuickerThanARingThroughPcieGoByNodes) {
  doc::CollectiveCost cost{.ranks = 8,
                           .segments = {{1 << 20, 1ll << 32, 60e-6, 1 / 93e9, 0.99, 1.01}},
                           .samples = {{1 << 20, 71.3e-6}, {1ll << 32, 46.24e-3}},
                           .ranks_per_node = 4};
  const double bytes = 1ll << 30, bulk = bytes / 93e9;
  EXPECT_NEAR(on_ranks(cost, bytes, 16).seconds, 60e-6 * 3 / 2 + 1.5 * bulk, 1e-9);
  EXPECT_NEAR(on_ranks(cost, bytes, 128).seconds, 60e-6 * 6 / 2 + 1.9375 * bulk, 1e-9);
  // Others measured 22.0, 22.8 and 24.6 ms on 4, 8 and 16 of such nodes.
  for (const auto& [ranks, seconds] : {std::pair{16, 22.0e-3}, {32, 22.8e-3}, {256, 24.6e-3}}) {
    const Estimate e = on_ranks(cost, bytes, ranks);
    EXPECT_LT(e.low, seconds) << ranks;
    EXPECT_GT(e.high, seconds) << ranks;
  }
  // A tenth as quick it may be one ring: 2 (n - 1) / n, 7/4 and 15/8.
  cost.segments[0].beta_s_per_byte *= 10;
  for (doc::CostSample& sample : cost.samples) sample.seconds *= 10;
  EXPECT_NEAR(on_ranks(cost, bytes, 16).seconds, 60e-6 * 15 / 7 + 10 * bulk * 15 / 14, 1e-9);
}

TEST(Fitted, IsExactAtTheMeasuredRankCountAndFreeOnOneRank) {
  EXPECT_FALSE(on_ranks(two_segments(), 2000, 4).extrapolated);
  EXPECT_EQ(on_ranks(two_segments(), 2000, 1).seconds, 0);
}

TEST(Fitted, ABroadcastPassesATreeOfRanks) {
  doc::CollectiveCost cost = two_segments();
  cost.collective = Collective::broadcast;
  // 4 -> 16 ranks: log2(16)/log2(4) = 2 latencies, the bytes per link stay.
  EXPECT_NEAR(on_ranks(cost, 10000, 16).seconds, 2 * 10e-6 + 19e-6, 1e-15);
}

// 4 ranks, two levels: 10 us and 2 ns/B up to 1000 B, then 1 ns/B, as of arrays cut in chunks.
TEST(Fitted, ABroadcastOnFewerRanksHasFewerLevelsButAPassAtLeast) {
  const doc::CollectiveCost cost{
      .collective = Collective::broadcast,
      .ranks = 4,
      .segments = {{100, 1000, 10e-6, 2e-9, 0.9, 1.1}, {1000, 100000, 11e-6, 1e-9, 0.9, 1.1}},
      .samples = {{100, 10.2e-6}, {1000, 12e-6}, {100000, 111e-6}}};
  EXPECT_NEAR(on_ranks(cost, 1000, 2).seconds, 5e-6 + 1e-6, 1e-7);      // half of both
  EXPECT_NEAR(on_ranks(cost, 100000, 2).seconds, 5e-6 + 100e-6, 1e-6);  // one pass
  EXPECT_NEAR(on_ranks(cost, 1e6, 2).seconds, 5e-6 + 1e-3, 1e-6);       // beyond the table
  EXPECT_NEAR(TableLaw(cost).moved_to(Collective::broadcast, 2).at(1e6).seconds(),
              on_ranks(cost, 1e6, 2).seconds, 1e-12);
  EXPECT_NEAR(on_ranks(cost, 1000, 3).seconds, 12e-6 * std::log2(3) / 2, 1e-12);
}

// 2 ranks: 8 us up to 32 KiB, by another schedule than the ring's 220 us + 1 ns/B above.
TEST(Fitted, EachRegimeHasAStartUpOfItsOwn) {
  doc::CollectiveCost cost{
      .ranks = 2,
      .segments = {{0, 32768, 8e-6, 0, 0.9, 1.1}, {32768, 1 << 30, 220e-6, 1e-9, 0.9, 1.1}}};
  EXPECT_NEAR(on_ranks(cost, 32768, 64).seconds, 63 * 8e-6, 1e-12);
  // 63 times the message steps, 2 * 63 / 64 the bytes per link.
  EXPECT_NEAR(on_ranks(cost, 247000, 64).seconds, 63 * 220e-6 + 247e-6 * 126 / 64, 1e-9);
  // The same where samples show the switch only as a bracket.
  cost.segments = {{1024, 32768, 8e-6, 0, 0.9, 1.1},
                   {32768, 65536, -277.536e-6, 8.713867e-9, 0.9, 1.1},  // to 293.536 us
                   {65536, 1 << 30, 228e-6, 1e-9, 0.9, 1.1}};
  cost.switches = {{32768, 65536}};
  EXPECT_NEAR(on_ranks(cost, 247000, 64).seconds, 63 * 228e-6 + 247e-6 * 126 / 64, 1e-6);
}

// Far from the measured ranks and sizes less is known: the interval widens, its low end never falls
// with more ranks and its high end never rises on fewer.
TEST(Fitted, IntervalsGrowAwayFromWhatWasMeasured) {
  const doc::CollectiveCost cost = two_segments();
  constexpr double kRounding = 1 + 1e-12;
  for (const double bytes : {10.0, 300.0, 10000.0, 1e9}) {
    Estimate before = on_ranks(cost, bytes, 4);
    for (int ranks = 5; ranks < 3000; ++ranks) {
      const Estimate e = on_ranks(cost, bytes, ranks);
      EXPECT_GE(e.low * kRounding, before.low) << ranks;
      EXPECT_GE(e.high / e.low * kRounding, before.high / before.low) << ranks;
      before = e;
    }
    EXPECT_LE(on_ranks(cost, bytes, 2).high, on_ranks(cost, bytes, 3).high * kRounding);
    EXPECT_LE(on_ranks(cost, bytes, 3).high, on_ranks(cost, bytes, 4).high * kRounding);
  }
  Estimate before = evaluate(cost, 10000);
  for (double bytes = 10100; bytes < 1e12; bytes *= 1.5) {
    const Estimate e = evaluate(cost, bytes);
    EXPECT_GT(e.high / e.low, before.high / before.low) << bytes;
    before = e;
  }
}

}  // namespace
}  // namespace linerate::cost
