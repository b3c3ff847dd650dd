#include "linerate/doc/block.hpp"

#include <gtest/gtest.h>

namespace linerate::doc {
namespace {

const Block kDense{.a = 147, .g = 64, .rows_a = 100, .rows_g = 100};
const Block kGrouped{.a = 9, .g = 1, .groups = 32};
const Block kEmbedding{.kind = BlockKind::embedding, .a = 30522, .g = 768};
const Block kNorm{.kind = BlockKind::unit_wise, .g = 64};

TEST(Block, PacksTrianglesDiagonalsAndTwoByTwoMatrices) {
  EXPECT_EQ(packed_elements(kDense, FactorSide::a), 147 * 148 / 2);
  EXPECT_EQ(packed_elements(kDense, FactorSide::g), 64 * 65 / 2);
  EXPECT_EQ(packed_elements(kGrouped, FactorSide::a), 32 * 45);
  EXPECT_EQ(packed_elements(kEmbedding, FactorSide::a), 30522);
  EXPECT_EQ(packed_elements(kEmbedding, FactorSide::g), 768 * 769 / 2);
  EXPECT_EQ(packed_elements(kNorm, FactorSide::a), 0);
  EXPECT_EQ(packed_elements(kNorm, FactorSide::g), 3 * 64);
}

TEST(Block, PreconditionsItsLayersParameters) {
  EXPECT_EQ(gradient_elements(kDense), 147 * 64);
  EXPECT_EQ(gradient_elements(kGrouped), 32 * 9);
  EXPECT_EQ(gradient_elements(kEmbedding), 30522 * 768);
  EXPECT_EQ(gradient_elements(kNorm), 2 * 64);
}

TEST(Block, ScalesByPackedElements) {
  const Block quarter = scaled(kDense, 0.25);
  // d (d + 1) / 2 nearest to a quarter of 10878 and 2080: 73 * 74 / 2 = 2701, 32 * 33 / 2 = 528.
  EXPECT_EQ(quarter.a, 73);
  EXPECT_EQ(quarter.g, 32);
  EXPECT_EQ(quarter.rows_a, 100);  // 2 rows d^2 is a quarter as well
  EXPECT_EQ(scaled(kEmbedding, 0.5).a, 15261);
  EXPECT_EQ(scaled(kNorm, 0.5).g, 32);
  EXPECT_EQ(scaled(kNorm, 1e-6).g, 1);
  EXPECT_EQ(scaled(kNorm, 0.5).a, 0);
}

TEST(Block, NamesOfKindsAreReadBack) {
  for (const BlockKind kind : {BlockKind::kronecker, BlockKind::embedding, BlockKind::unit_wise})
    EXPECT_EQ(parse_block_kind(name_of(kind)), kind);
}

}  // namespace
}  // namespace linerate::doc
