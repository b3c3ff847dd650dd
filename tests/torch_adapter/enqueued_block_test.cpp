// What a block decides if nobody looks at its values.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/triangle_packing.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr double kDecay = 0.95;

std::unique_ptr<CurvatureBlock> linear_block() {
  return make_block({.name = "layer", .weight = torch::zeros({2, 2}, torch::kDouble)}, {});
}

at::Tensor diagonal(double first, double second) {
  return pack_triangles(torch::tensor({first, 0.0, 0.0, second}, torch::kDouble).view({1, 2, 2}));
}

bool enqueue_average(CurvatureBlock& block, FactorSide side, const at::Tensor& packed,
                     bool used = true) {
  return block.enqueue_average(side, packed, torch::tensor(used), kDecay, false).item<bool>();
}

TEST(EnqueuedBlock, TakesAFactorThatIsUsedAndFinite) {
  const auto block = linear_block();
  const auto average = [&] { return block->average(FactorSide::a); };
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(7, 7), /*used=*/false));
  EXPECT_TRUE(enqueue_average(*block, FactorSide::a,
                              diagonal(1, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(average().eq(0).all().item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).average.defined());
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(2, 4)));  // the first that counts
  EXPECT_TRUE(average().equal(diagonal(2, 4)));
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(4, 8)));
  EXPECT_TRUE(average().equal(diagonal(3, 6)));
  EXPECT_EQ(block->save(FactorSide::a).updates, 2);
}

/// diag(1, -0.5) + gamma I is positive definite from gamma = 0.5 on: gamma is the damping's root,
/// 0.1, then ten times as much.
TEST(EnqueuedBlock, TriesAgainWithMoreDampingAndKeepsTheOldInverseMeanwhile) {
  const auto block = linear_block();
  const auto inverse = [&] {
    return block->enqueue_inverse(FactorSide::a, 0.01).succeeded.item<bool>();
  };
  EXPECT_FALSE(inverse());  // of nothing
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    enqueue_average(*block, side, diagonal(1, -0.5));
  const CurvatureBlock::Enqueued first = block->enqueue_inverse(FactorSide::a, 0.01);
  EXPECT_TRUE(first.failed.item<bool>());
  EXPECT_FALSE(first.succeeded.item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).has_inverse);
  EXPECT_TRUE(inverse());
  EXPECT_TRUE(block->save(FactorSide::a).has_inverse);
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  EXPECT_TRUE(found.allclose(diagonal(0.5, 2)));
  EXPECT_FALSE(inverse());  // a tenth again
  EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  EXPECT_FALSE(block->inverse_there().item<bool>());  // G has none
}

}  // namespace
}  // namespace linerate::torch_adapter
