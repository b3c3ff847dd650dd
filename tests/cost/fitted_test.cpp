#include "linerate/cost/fitted.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace linerate::cost {
namespace {

// 4 ranks. 10 us + 1 ns/B up to 1000 B, then 9 us + 2 ns/B: both give 11 us at the border.
// Intervals 10 % and 20 %.
doc::CollectiveCost two_segments() {
  doc::CollectiveCost cost;
  cost.ranks = 4;
  cost.segments = {{100, 1000, 10e-6, 1e-9, 0.9, 1.1}, {1000, 10000, 9e-6, 2e-9, 0.8, 1.2}};
  cost.samples = {{100, 10.1e-6}, {1000, 11e-6}, {10000, 29e-6}};
  return cost;
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
}

TEST(Fitted, FarOutsideTheLowEndIsSmallButNeverZero) {
  const Estimate e = evaluate(two_segments(), 1);
  EXPECT_GT(e.low, 0);
  EXPECT_LT(e.low, e.seconds);
}

TEST(Fitted, NeverFallsFasterThanTheBytesBelowTheSmallestSize) {
  doc::CollectiveCost cost = two_segments();
  // A secant with alpha < 0: -5 us + 100 ns/B is 5 us at 100 B and negative at 25 B.
  cost.segments.front() = {100, 1000, -5e-6, 100e-9, 0.9, 1.1};
  EXPECT_DOUBLE_EQ(evaluate(cost, 25).seconds, 5e-6 / 4);
}

TEST(Fitted, MovesToOtherRankCountsByTheRingsLaw) {
  // 10000 B: 29 us, of it 10 us latency. 4 -> 8 ranks: steps 7/3, bytes per link (14/8) / (6/4) =
  // 7/6.
  const Estimate e = parts_at_ranks(two_segments(), 10000, 8).estimate();
  EXPECT_NEAR(e.seconds, 10e-6 * 7 / 3 + 19e-6 * 7 / 6, 1e-15);
  EXPECT_TRUE(e.extrapolated);
  // A tree needs log2(8)/log2(4) = 3/2 of the latency: the interval reaches down to it, on by the
  // fit's own 20 % and by 10 % for one doubling of the ranks.
  EXPECT_NEAR(e.low, 0.8 * (10e-6 * 1.5 + 19e-6 * 7 / 6) / 1.1, 1e-15);
  EXPECT_NEAR(e.high, 1.2 * e.seconds * 1.1, 1e-15);
}

TEST(Fitted, IsExactAtTheMeasuredRankCountAndFreeOnOneRank) {
  EXPECT_FALSE(parts_at_ranks(two_segments(), 2000, 4).estimate().extrapolated);
  EXPECT_EQ(parts_at_ranks(two_segments(), 2000, 1).estimate().seconds, 0);
}

TEST(Fitted, ABroadcastPassesATreeOfRanks) {
  doc::CollectiveCost cost = two_segments();
  cost.collective = Collective::broadcast;
  // 4 -> 16 ranks: log2(16)/log2(4) = 2 latencies, the bytes per link stay.
  EXPECT_NEAR(parts_at_ranks(cost, 10000, 16).estimate().seconds, 2 * 10e-6 + 19e-6, 1e-15);
}

}  // namespace
}  // namespace linerate::cost
