// Shapes and FLOPs of single nodes, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "linerate/core/error.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/models/description.hpp"

namespace linerate::models {
namespace {

TEST(Builder, ConvolutionCountsTwoFlopsPerMultiplyAdd) {
  Builder b("test", {3, 8, 8});
  const int conv = b.conv2d("conv", b.input(), 4, same(3, 2));
  // (8 + 2 - 3) / 2 + 1 = 4; 4*4*4 outputs of 3*9 multiply-adds
  EXPECT_EQ(b.shape(conv), (Shape{4, 4, 4}));
  EXPECT_EQ(std::move(b).finish(Initialisation::he).flops(), 64 * 27 * 2);
}

TEST(Builder, PointwiseLinearKeepsTheSequence) {
  Builder b("test", {5}, 100);
  int x = b.embedding("words", b.input(), 100, 8);
  x = b.linear("up", x, 16);
  EXPECT_EQ(b.shape(x), (Shape{5, 16}));
  EXPECT_EQ(b.shape(b.tied_linear(b.linear("down", x, 8), 1)), (Shape{5, 100}));
}

TEST(Builder, FusedAttentionReturnsOneThirdOfTheWidth) {
  Builder b("test", {4}, 10);
  const int qkv = b.linear("qkv", b.embedding("words", b.input(), 10, 6), 18);
  EXPECT_EQ(b.shape(b.attention({qkv}, 2, true, 0)), (Shape{4, 6}));
}

TEST(Builder, ConcatAddsTheChannels) {
  Builder b("test", {3, 4, 4});
  EXPECT_EQ(b.shape(b.concat({b.input(), b.conv2d("conv", b.input(), 5, valid(1))})),
            (Shape{8, 4, 4}));
}

// Published forward FLOPs (multiply-adds): ResNet-50 4.09e9, ResNet-18 1.81e9, VGG-16 15.5e9 at
// 224x224 [fvcore, torchvision]. Ours count 2 per multiply-add plus the small operations, a few per
// cent.
TEST(Flops, ReproduceThePublishedWork) {
  EXPECT_NEAR(describe("resnet50").flops() / 2, 4.09e9, 0.04 * 4.09e9);
  EXPECT_NEAR(describe("resnet18").flops() / 2, 1.81e9, 0.04 * 1.81e9);
  EXPECT_NEAR(describe("vgg16").flops() / 2, 15.5e9, 0.04 * 15.5e9);
}

TEST(Shape, ReadsAndRefuses) {
  EXPECT_EQ(parse_shape("3x32x32"), (Shape{3, 32, 32}));
  EXPECT_EQ(parse_shape("128"), Shape{128});
  for (const char* bad : {"", "3x", "x3", "3x-1x2", "0x2x2", "3X3", "1x2x3x4", "99999999999"})
    EXPECT_THROW(parse_shape(bad), UsageError) << bad;
}

}  // namespace
}  // namespace linerate::models
