// The networks of the zoo against their published sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/models/catalogue.hpp"

namespace linerate::models {
namespace {

struct Published {
  const char* name;
  std::int64_t parameters;
};
class PublishedCount : public testing::TestWithParam<Published> {};

TEST_P(PublishedCount, IsThatOfTheTable) {
  EXPECT_EQ(describe(GetParam().name).parameter_elements(), GetParam().parameters);
}

// torchvision 0.24 (resnets, vgg16_bn, densenet201), timm (inception_v4), transformers
// (bert-base-uncased and bert-large-uncased with pooler and without a language-model head, gpt2).
// LeNet-5: 156 + 2416 + 48120 + 10164 + 850. MLP: 785*512 + 513*256 + 257*10.
INSTANTIATE_TEST_SUITE_P(
    Models, PublishedCount,
    testing::Values(Published{"mlp", 535818}, Published{"lenet", 61706},
                    Published{"resnet18", 11689512}, Published{"resnet50", 25557032},
                    Published{"resnet101", 44549160}, Published{"resnet152", 60192808},
                    Published{"vgg16", 138365992}, Published{"densenet201", 20013928},
                    Published{"inception-v4", 42679816}, Published{"bert-base", 109482240},
                    Published{"bert-large", 335141888}, Published{"gpt-small", 124439808}),
    [](const auto& one) {
      std::string name = one.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(SmallVariant, ResNetStemIsThreeByThreeWithoutPooling) {
  const Description m = describe("resnet18", {.input = Shape{3, 32, 32}, .classes = 10});
  EXPECT_EQ(m.nodes[1].parameters[0].shape, (Shape{64, 3, 3, 3}));
  EXPECT_EQ(m.nodes[1].output, (Shape{64, 32, 32}));
  for (const Node& node : m.nodes) EXPECT_NE(node.op, Op::max_pool);
  // 11,689,512 - stem 64*3*(49-9) - head 513*(1000-10) - 0 elsewhere
  EXPECT_EQ(m.parameter_elements(), 11689512 - 64 * 3 * (49 - 9) - 513 * 990);
}

TEST(SmallVariant, VggHeadIsLinear512To512ToTen) {
  const Description m = describe("vgg16", {.input = Shape{3, 32, 32}, .classes = 10});
  // Convolutions 14,714,688, batch norms 2*4224, head 513*512 + 513*10: the 59.96 MB of gradients
  // in DDP's comparison.
  EXPECT_EQ(m.parameter_elements(), 14714688 + 2 * 4224 + 513 * 512 + 513 * 10);
}

TEST(SmallVariant, EveryImageModelTakesThirtyTwoPixelsAndTenClasses) {
  for (const auto& line : catalogue().lines()) {
    if (parse_shape(line.make.default_input).size() != 3) continue;
    const Description m = describe(line.name, {.input = Shape{3, 32, 32}, .classes = 10});
    EXPECT_EQ(m.output(), Shape{10}) << line.name;
  }
}

TEST(Catalogue, UnknownModelSuggestsTheNearest) {
  EXPECT_THAT([] { describe("resnet81"); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("did you mean \"resnet18\"")));
}

TEST(Catalogue, TooSmallAnInputNamesTheLayer) {
  EXPECT_THAT(
      [] {
        describe("lenet", {.input = Shape{1, 8, 8}});
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("too small: at conv2")));
}

TEST(Catalogue, ImagesForATokenModelAreRefused) {
  EXPECT_THAT(
      [] {
        describe("gpt-small", {.input = Shape{3, 32, 32}});
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("sequence length")));
}

}  // namespace
}  // namespace linerate::models
