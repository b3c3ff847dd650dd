// Straight pieces of cost curves.
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

TEST(AffinePieces, OfALineAreOne) {
  const CostCurve curve{.line = {2e-5, 1e-9}};
  EXPECT_EQ(affine_pieces(curve, kMost).size(), 1u);
  expect_equal(curve);
}

TEST(AffinePieces, OfAnAddTableAreThoseOfTheTable) {
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

}  // namespace
}  // namespace linerate::cost
