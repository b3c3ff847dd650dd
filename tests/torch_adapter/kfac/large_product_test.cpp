#include "linerate/torch_adapter/kfac/conv_products.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "torch_adapter/kfac/factor_oracle.hpp"

namespace linerate::torch_adapter {
namespace {

/// [n, k] in f32 whose columns, not rows, lie in a piece.
at::Tensor by_columns(const at::Tensor& x) { return x.t().contiguous().t(); }

// 128 x 512 x 512 multiplications go through oneDNN, one column fewer do not.
TEST(LargeProduct, IsThatOfF64WhateverTheStrides) {
  for (const std::int64_t columns : {512, 511}) {
    const at::Tensor x = noise({128, 512}, 1).to(at::kFloat),
                     y = noise({columns, 512}, 2).to(at::kFloat);
    const at::Tensor found = times_transpose(x, y);
    const at::Tensor exact = at::matmul(x.to(at::kDouble), y.to(at::kDouble).t());
    ASSERT_EQ(found.sizes(), exact.sizes());
    EXPECT_LT((found.to(at::kDouble) - exact).abs().max().item<double>(),
              3e-6 * exact.abs().max().item<double>());
    if (columns == 512) {
      EXPECT_TRUE(at::equal(found, times_transpose(by_columns(x), by_columns(y))));
    }
  }
}

TEST(LargeProduct, KeepsF64) {
  const at::Tensor x = noise({128, 512}, 3), y = noise({512, 512}, 4);
  EXPECT_TRUE(at::equal(times_transpose(x, y), at::matmul(x, y.t())));
}

}  // namespace
}  // namespace linerate::torch_adapter
