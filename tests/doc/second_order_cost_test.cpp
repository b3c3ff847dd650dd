#include "linerate/doc/cluster.hpp"

#include <gtest/gtest.h>

namespace linerate::doc {
namespace {

// Whole seconds, so that the sums are exact: an inversion 2 + d^3 / 8, a flop 1 s, an element of
// the input 10 s, of the packed factor 100 s.
SecondOrderCost whole_seconds() {
  SecondOrderCost c;
  c.inverse_fixed_s = 2;
  c.inverse_s_per_cube = 0.125;
  c.factor_fixed_s = 1000;
  c.factor_flops_per_s = 1;
  c.factor_s_per_input = 10;
  c.factor_s_per_element = 100;
  c.precondition_fixed_s = 5;
  c.precondition_flops_per_s = 2;
  return c;
}

TEST(SecondOrderCost, InvertsByFixedCostAndCube) {
  EXPECT_EQ(whole_seconds().inverse_s(4), 2 + 64 * 0.125);
}

TEST(SecondOrderCost, JoinsMeasuredInversionsInTheCube) {
  SecondOrderCost c = whole_seconds();
  c.inverses = {{2, 10}, {4, 24}};  // 8 and 64: a quarter of a second a cube
  EXPECT_EQ(c.inverse_s(1), 10);
  EXPECT_EQ(c.inverse_s(2), 10);
  EXPECT_DOUBLE_EQ(c.inverse_s(3), 10 + (27 - 8) * 0.25);
  EXPECT_EQ(c.inverse_s(4), 24);
  EXPECT_EQ(c.inverse_s(8), 24 * 8);
}

TEST(SecondOrderCost, MatricesOfOneCallTakeTheShareThatWasMeasured) {
  SecondOrderCost c;
  EXPECT_EQ(c.together_share(64), 1);
  EXPECT_EQ(c.most_together(64), 1);
  c.batches = {{16, 4, 8, 2}, {32, 4, 8, 4}, {64, 8, 10, 12}};
  EXPECT_EQ(c.together_share(8), 0.25);  // as of the smallest
  EXPECT_EQ(c.together_share(16), 0.25);
  EXPECT_EQ(c.together_share(24), 0.375);
  EXPECT_EQ(c.together_share(32), 0.5);
  EXPECT_DOUBLE_EQ(c.together_share(48), 0.85);
  EXPECT_EQ(c.together_share(64), 1.2);
  EXPECT_EQ(c.together_share(65), 1);  // nobody knows
  EXPECT_EQ(c.most_together(8), 4);
  EXPECT_EQ(c.most_together(48), 8);
  EXPECT_EQ(c.most_together(65), 1);
}

TEST(SecondOrderCost, FactorsCostProductInputAndPacking) {
  const Block block{.a = 3, .g = 2, .groups = 2, .rows_a = 7, .rows_g = 5};
  EXPECT_EQ(factor_s(block, FactorSide::a, whole_seconds()),
            1000 + 2 * (2 * 7 * 9) + 2 * 7 * 3 * 10 + 2 * 6 * 100);
  EXPECT_EQ(factor_s(block, FactorSide::g, whole_seconds()),
            1000 + 2 * (2 * 5 * 4) + 2 * 5 * 2 * 10 + 2 * 3 * 100);
  EXPECT_EQ(inverse_s(block, FactorSide::g, whole_seconds()), 2 * (2 + 8 * 0.125));
  // 2 * 3 * 2 * (3 + 2) flops a group, two groups, two flops a second
  EXPECT_EQ(precondition_s(block, whole_seconds()), 5 + 60);
  // Into the eigenvectors' basis and back.
  EXPECT_EQ(precondition_s(block, whole_seconds(), /*by_eigen=*/true), 5 + 120);
}

// That is what a hook took: packing and averaging 6 elements come on top.
TEST(SecondOrderCost, ATimeOfTheBlockIsTakenBeforeTheRate) {
  const Block block{.a = 3, .g = 2, .rows_a = 7, .rows_g = 5, .factor_a_s = 42};
  EXPECT_EQ(factor_s(block, FactorSide::a, whole_seconds()), 42 + 6 * 100);
  EXPECT_EQ(factor_s(block, FactorSide::a, std::nullopt), 42);
  EXPECT_EQ(factor_s(block, FactorSide::g, std::nullopt), 0);
}

TEST(SecondOrderCost, DiagonalsAndTwoByTwoMatricesAreNotInverted) {
  const Block embedding{.kind = BlockKind::embedding, .a = 100, .g = 4, .rows_a = 6, .rows_g = 6};
  const Block norm{.kind = BlockKind::unit_wise, .g = 4, .rows_g = 6};
  EXPECT_EQ(inverse_s(embedding, FactorSide::a, whole_seconds()), 0);
  EXPECT_EQ(inverse_s(embedding, FactorSide::g, whole_seconds()), 10);
  EXPECT_EQ(inverse_s(norm, FactorSide::g, whole_seconds()), 0);
  // Six rows counted, a hundred counts packed.
  EXPECT_EQ(factor_s(embedding, FactorSide::a, whole_seconds()), 1000 + 6 + 60 + 100 * 100);
  EXPECT_EQ(factor_s(norm, FactorSide::a, whole_seconds()), 0);
  EXPECT_EQ(factor_s(norm, FactorSide::g, whole_seconds()), 1000 + 6 * 6 * 4 + 240 + 3 * 4 * 100);
}

}  // namespace
}  // namespace linerate::doc
