// Products that taps of a convolution share, against those of its patches.
#include "linerate/torch_adapter/kfac/conv_products.hpp"

#include "torch_adapter/kfac/factor_oracle.hpp"

namespace linerate::torch_adapter {
namespace {

struct Case {
  ConvGeometry geometry;
  std::int64_t samples = 1, channels = 1, height = 1, width = 1;

  at::Tensor images() const { return noise({samples, channels, height, width}, 70); }
  at::Tensor patches() const { return conv_patches(images(), geometry); }
};

/// Kernels, paddings (of one side alone, wider than the kernel), dilations and sizes, down to
/// outputs that see but padding; drawn, so that no one chose what they meet.
std::vector<Case> cases() {
  std::vector<Case> drawn;
  for (std::uint64_t k = 0; drawn.size() < 300; ++k) {
    std::uint64_t i = 0;
    const auto draw = [&](std::uint64_t below) {
      return static_cast<std::int64_t>(random_below(k, i++, below));
    };
    Case c;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      c.geometry.kernel[axis] = 1 + draw(5);
      c.geometry.dilation[axis] = 1 + draw(3);
      c.geometry.pad_before[axis] = draw(5);
      c.geometry.pad_after[axis] = draw(5);
    }
    c.samples = 1 + draw(3), c.channels = 1 + draw(4), c.height = 1 + draw(9),
    c.width = 1 + draw(9);
    if (c.geometry.outputs(0, c.height) > 0 && c.geometry.outputs(1, c.width) > 0)
      drawn.push_back(c);
  }
  return drawn;
}

TEST(ConvProducts, AreThoseOfThePatches) {
  for (const Case& c : cases()) {
    const at::Tensor patches = c.patches(), start = noise({patches.size(0), patches.size(0)}, 71);
    const at::Tensor sum = start.clone();
    add_conv_products(c.images(), c.geometry, 2.5, sum);
    EXPECT_TRUE(
        torch::allclose(sum.triu(), (start + 2.5 * patches.mm(patches.t())).triu(), 1e-12, 1e-12))
        << c.geometry.kernel[0] << " x " << c.geometry.kernel[1] << " on " << c.height << " x "
        << c.width;
    EXPECT_TRUE(torch::allclose(conv_patch_sum(c.images(), c.geometry, at::kDouble), patches.sum(1),
                                1e-12, 1e-12));
  }
}

TEST(ConvProducts, OfManySamplesAreTakenInParts) {
  const Case c{{.kernel = {3, 3}, .pad_before = {1, 1}, .pad_after = {1, 1}}, 150, 16, 32, 32};
  const at::Tensor patches = c.patches(), sum = torch::zeros({144, 144}, at::kDouble);
  add_conv_products(c.images(), c.geometry, 1, sum);
  EXPECT_LE(error_of(sum.triu(), patches.mm(patches.t()).triu()), 1e-13);
}

TEST(ConvProducts, AreSharedWithStrideOneAndEnoughChannels) {
  const ConvGeometry three{.kernel = {3, 3}};
  EXPECT_TRUE(shares_products(three, 64));
  EXPECT_FALSE(shares_products(three, 1));
  EXPECT_FALSE(shares_products({.kernel = {3, 3}, .stride = {1, 2}}, 64));
  EXPECT_FALSE(shares_products({}, 64));
}

}  // namespace
}  // namespace linerate::torch_adapter
