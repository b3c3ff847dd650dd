// Shapes and FLOPs of single nodes, worked out by hand.
#include <gmock/gmock.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/models/description.hpp"
#include "linerate/models/workload.hpp"

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

// The networks of the zoo against their published sizes.

// torchvision 0.24 (resnets, vgg16_bn, densenet201), timm (inception_v4), transformers
// (bert-base-uncased and bert-large-uncased with pooler and without a language-model head, gpt2).
// LeNet-5: 156 + 2416 + 48120 + 10164 + 850. MLP: 785*512 + 513*256 + 257*10.
TEST(PublishedCount, IsThatOfTheTable) {
  for (const auto& [name, parameters] :
       std::vector<std::pair<const char*, std::int64_t>>{{"mlp", 535818},
                                                         {"lenet", 61706},
                                                         {"resnet18", 11689512},
                                                         {"resnet50", 25557032},
                                                         {"resnet101", 44549160},
                                                         {"resnet152", 60192808},
                                                         {"vgg16", 138365992},
                                                         {"densenet201", 20013928},
                                                         {"inception-v4", 42679816},
                                                         {"bert-base", 109482240},
                                                         {"bert-large", 335141888},
                                                         {"gpt-small", 124439808}})
    EXPECT_EQ(describe(name).parameter_elements(), parameters) << name;
}

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

TEST(Catalogue, RefusesUnknownModelsAndInputsThatDoNotFit) {
  struct Case {
    const char* model;
    Options options;
    const char* said;
  };
  for (const Case& one : {Case{"resnet81", {}, "did you mean \"resnet18\""},
                          Case{"lenet", {.input = Shape{1, 8, 8}}, "too small: at conv2"},
                          Case{"gpt-small", {.input = Shape{3, 32, 32}}, "sequence length"}})
    EXPECT_THAT([&] { describe(one.model, one.options); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(one.said)));
}

// Factors of the networks against what is published and counted by hand.

using doc::Block;
using doc::BlockKind;
using doc::FactorSide;

/// What the K-FAC papers precondition: convolutions and linear layers.
std::vector<Block> dense_blocks(std::string_view name, std::int64_t batch = 1) {
  std::vector<Block> blocks = blocks_of(describe(name), batch);
  std::erase_if(blocks, [](const Block& b) { return b.kind != BlockKind::kronecker; });
  return blocks;
}

struct Sums {
  std::int64_t layers = 0, parameters = 0, triangles_a = 0, triangles_g = 0, squares = 0;
  std::int64_t cubes = 0, dims = 0, largest = 0, above_threshold = 0;
};

Sums sums_of(std::string_view name) {
  Sums s;
  for (const Block& b : dense_blocks(name)) {
    ++s.layers;
    s.parameters += doc::gradient_elements(b);
    s.triangles_a += doc::packed_elements(b, FactorSide::a);
    s.triangles_g += doc::packed_elements(b, FactorSide::g);
    for (const std::int64_t d : {b.a, b.g}) {
      s.squares += d * d;
      s.cubes += d * d * d;
      s.dims += d;
      s.largest = std::max(s.largest, d);
      s.above_threshold += d >= 1400 ? 1 : 0;
    }
  }
  return s;
}

TEST(Blocks, OfResNet50AreThePublishedOnes) {
  // Exact sums over the 108 factors that Shi, Zhang and Li 2021 list.
  const Sums s = sums_of("resnet50");
  EXPECT_EQ(s.triangles_a, 62'348'671);
  EXPECT_EQ(s.triangles_g, 14'618'356);
  EXPECT_EQ(s.squares, 153'851'562);
  EXPECT_EQ(s.cubes, 452'798'667'340);
  EXPECT_EQ(s.dims, 82'492);
  EXPECT_EQ(s.largest, 4608);
  EXPECT_EQ(s.above_threshold, 16);
}

TEST(Blocks, OfDenseNet201FollowItsGenerator) {
  // A 147, then blocks of 6, 12, 48 and 32 layers over c = 64, 96, ... channels: c by 128 and 1152
  // by 32; behind the first three a transition c by c / 2; at last 1921 by 1000.
  std::vector<std::pair<std::int64_t, std::int64_t>> dims = {{147, 64}};
  std::int64_t c = 64;
  for (const int layers : {6, 12, 48, 32}) {
    for (int i = 0; i < layers; ++i, c += 32) {
      dims.emplace_back(c, 128);
      dims.emplace_back(1152, 32);
    }
    if (layers == 32) break;
    dims.emplace_back(c, c / 2);
    c /= 2;
  }
  dims.emplace_back(c + 1, 1000);
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (const Block& b : dense_blocks("densenet201")) found.emplace_back(b.a, b.g);
  EXPECT_EQ(found, dims);
}

struct Row {
  const char* name;
  std::int64_t layers;
  double parameters, triangles_a, triangles_g;  // millions, two digits
  std::int64_t largest, above_threshold;
};

// Shi, Zhang and Li 2021: the four networks of their evaluation.
TEST(Blocks, HaveTheSumsOfTheTable) {
  const double half_a_digit = 0.005 + 1e-9;
  for (const Row& row : {Row{"resnet50", 54, 25.50, 62.35, 14.62, 4608, 16},
                         Row{"resnet152", 156, 60.04, 161.96, 32.93, 4608, 46},
                         Row{"densenet201", 201, 19.78, 130.96, 1.81, 1921, 30},
                         Row{"inception-v4", 150, 42.62, 116.41, 4.70, 3456, 48}}) {
    SCOPED_TRACE(row.name);
    const Sums s = sums_of(row.name);
    EXPECT_EQ(s.layers, row.layers);
    EXPECT_NEAR(static_cast<double>(s.parameters) * 1e-6, row.parameters, half_a_digit);
    EXPECT_NEAR(static_cast<double>(s.triangles_a) * 1e-6, row.triangles_a, half_a_digit);
    EXPECT_NEAR(static_cast<double>(s.triangles_g) * 1e-6, row.triangles_g, half_a_digit);
    EXPECT_EQ(s.largest, row.largest);
    EXPECT_EQ(s.above_threshold, row.above_threshold);
  }
}

TEST(Blocks, CoverEveryParameterOfAModelOnce) {
  for (const auto& line : catalogue().lines()) {
    const doc::Workload w = workload(line.name, {.batch = 2});
    std::vector<std::int64_t> of_layer(w.layers.size());
    for (const doc::Gradient& g : w.gradients) of_layer[to_index(g.layer)] += g.elements;
    const bool tied = line.name == "gpt-small";  // its first layer, the token embedding
    ASSERT_EQ(w.blocks.size(), w.layers.size() - (tied ? 1 : 0)) << line.name;
    EXPECT_EQ(w.blocks.front().layer, tied ? 1 : 0);
    for (const Block& b : w.blocks)
      EXPECT_EQ(doc::gradient_elements(b), of_layer[to_index(b.layer)])
          << line.name << ": " << w.layers[to_index(b.layer)].name;
  }
}

TEST(Blocks, RowsAreSamplesTimesPositions) {
  const std::vector<Block> resnet = dense_blocks("resnet50", 32);
  // The published benchmark of factor products names (rows, d) = (401408, 147) and (32, 2049).
  EXPECT_EQ(resnet.front().rows_a, 401408);
  EXPECT_EQ(resnet.front().a, 147);
  EXPECT_EQ(resnet.back().rows_a, 32);
  EXPECT_EQ(resnet.back().a, 2049);
  const doc::Workload bert = workload("bert-base", {.batch = 4});
  ASSERT_EQ(bert.layers.front().name, "embeddings.word_embeddings");
  EXPECT_EQ(bert.blocks.front().kind, BlockKind::embedding);
  EXPECT_EQ(bert.blocks.front().a, 30522);
  EXPECT_EQ(bert.blocks.front().rows_a, 4 * 128);
  EXPECT_EQ(bert.blocks[3].kind, BlockKind::unit_wise);
  EXPECT_EQ(bert.blocks[3].g, 768);
  EXPECT_EQ(bert.blocks[3].rows_g, 4 * 128);
  EXPECT_EQ(bert.blocks[4].a, 769);
  EXPECT_EQ(bert.blocks[4].rows_g, 4 * 128);
  EXPECT_EQ(bert.blocks.back().rows_a, 4);              // the pooler sees the first token
  EXPECT_EQ(workload("mlp").blocks.front().rows_a, 0);  // no batch: unknown
}

}  // namespace
}  // namespace linerate::models
