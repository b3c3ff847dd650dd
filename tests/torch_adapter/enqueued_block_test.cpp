// What a block decides if nobody looks at its values.
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/types.h>

#include <limits>
#include <tuple>

#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"

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
  const at::Tensor counts = torch::tensor({used ? 1.0 : 0.0, 1.0}, torch::kDouble);
  const CurvatureBlock::Packed sum{{&block, side}, torch::cat({packed, counts})};
  return CurvatureBlock::update_averages({&sum, 1}, kDecay).item<bool>();
}

CurvatureBlock::Inverted invert_a(CurvatureBlock& block, const at::Tensor& damping) {
  const CurvatureBlock::Factor factor{&block, FactorSide::a};
  return CurvatureBlock::invert({&factor, 1}, damping);
}

TEST(EnqueuedBlock, TakesAFactorThatIsUsedAndFinite) {
  const CpuAsDevice as_device;
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
  const at::Tensor damping = torch::tensor(0.01, torch::kDouble);
  const auto inverse = [&] { return invert_a(*block, damping).succeeded.item<bool>(); };
  EXPECT_FALSE(inverse());  // of nothing
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    enqueue_average(*block, side, diagonal(1, -0.5));
  const CurvatureBlock::Inverted first = invert_a(*block, damping);
  EXPECT_TRUE(first.failed.item<bool>());
  EXPECT_FALSE(first.succeeded.item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).has_inverse);
  EXPECT_TRUE(inverse());
  EXPECT_TRUE(block->save(FactorSide::a).has_inverse);
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  EXPECT_TRUE(found.allclose(diagonal(0.5, 2)));
  EXPECT_FALSE(inverse());  // a tenth again
  EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  EXPECT_FALSE(block->has_inverse().item<bool>());  // G has none
}

/// Of each what it finds alone; one that fails holds no other up.
TEST(EnqueuedBlock, InvertsSeveralInOneCall) {
  const at::Tensor damping = torch::tensor(0.01, torch::kDouble);
  const auto blocks = [] {
    std::vector<std::unique_ptr<CurvatureBlock>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(linear_block());
      for (const FactorSide side : {FactorSide::a, FactorSide::g})
        enqueue_average(*made.back(), side, i == 1 ? diagonal(1, -0.5) : diagonal(i + 1, i + 3));
    }
    made.push_back(linear_block());  // without an average
    return made;
  };
  const auto together = blocks(), alone = blocks();
  const CpuAsDevice as_device;
  std::vector<CurvatureBlock::Factor> factors;
  for (const auto& block : together) factors.push_back({block.get(), FactorSide::a});
  const CurvatureBlock::Inverted found = CurvatureBlock::invert(factors, damping);
  ASSERT_EQ(found.succeeded.numel(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const CurvatureBlock::Inverted one = invert_a(*alone[i], damping);
    EXPECT_EQ(found.succeeded[n].item<bool>(), i == 0 || i == 2) << i;
    EXPECT_EQ(found.succeeded[n].item<bool>(), one.succeeded.item<bool>()) << i;
    EXPECT_EQ(found.failed[n].item<bool>(), one.failed.item<bool>()) << i;
    EXPECT_TRUE(
        together[i]->packed_inverse(FactorSide::a).equal(alone[i]->packed_inverse(FactorSide::a)))
        << i;
  }
  // The next try of the one that failed has more damping, those of the others what they had.
  const CurvatureBlock::Inverted again = CurvatureBlock::invert(factors, damping);
  EXPECT_TRUE(again.succeeded.narrow(0, 0, 3).all().item<bool>());
}

/// LibTorch throws then, though nobody has asked for the status.
std::tuple<at::Tensor, at::Tensor> does_not_converge(const at::Tensor&, c10::string_view, bool) {
  TORCH_CHECK_LINALG(false, "the algorithm failed to converge");
}

TEST(EnqueuedBlock, KeepsTheOldEigenvectorsIfTheSolverFails) {
  const auto block = make_block({.name = "layer", .weight = torch::zeros({2, 2}, torch::kDouble)},
                                {.method = InverseMethod::eigen});
  const auto inverse = [&] { return invert_a(*block, torch::tensor(0.01, torch::kDouble)); };
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    enqueue_average(*block, side, diagonal(2, 4));
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  enqueue_average(*block, FactorSide::a, diagonal(4, 8));
  {
    torch::Library failing(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    failing.impl("_linalg_eigh", does_not_converge);
    const CurvatureBlock::Inverted tried = inverse();
    EXPECT_TRUE(tried.failed.item<bool>());
    EXPECT_FALSE(tried.succeeded.item<bool>());
    EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  }
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  EXPECT_FALSE(block->packed_inverse(FactorSide::a).equal(found));
}

TEST(EnqueuedBlock, HasNoEigenvectorsOfWhatIsNotFinite) {
  const at::Tensor broken = torch::full({1, 2, 2}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(symmetric_eigen(broken.to(torch::kDouble)).succeeded.item<bool>());
  const Solved found = symmetric_eigen(torch::eye(2, torch::kDouble).unsqueeze(0) * 3);
  EXPECT_TRUE(found.succeeded.item<bool>());
  EXPECT_TRUE(found.values.eq(3).all().item<bool>());
}

}  // namespace
}  // namespace linerate::torch_adapter
