// Factors of the networks against what is published and counted by hand.
#include "linerate/models/description.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/models/catalogue.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::models {
namespace {

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
  EXPECT_EQ(s.layers, 54);
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
class BlocksOfTheTable : public testing::TestWithParam<Row> {};

TEST_P(BlocksOfTheTable, HaveItsSums) {
  const Row& row = GetParam();
  const Sums s = sums_of(row.name);
  const double half_a_digit = 0.005 + 1e-9;
  EXPECT_EQ(s.layers, row.layers);
  EXPECT_NEAR(static_cast<double>(s.parameters) * 1e-6, row.parameters, half_a_digit);
  EXPECT_NEAR(static_cast<double>(s.triangles_a) * 1e-6, row.triangles_a, half_a_digit);
  EXPECT_NEAR(static_cast<double>(s.triangles_g) * 1e-6, row.triangles_g, half_a_digit);
  EXPECT_EQ(s.largest, row.largest);
  EXPECT_EQ(s.above_threshold, row.above_threshold);
}

// Shi, Zhang and Li 2021: the four networks of their evaluation.
INSTANTIATE_TEST_SUITE_P(Models, BlocksOfTheTable,
                         testing::Values(Row{"resnet50", 54, 25.50, 62.35, 14.62, 4608, 16},
                                         Row{"resnet152", 156, 60.04, 161.96, 32.93, 4608, 46},
                                         Row{"densenet201", 201, 19.78, 130.96, 1.81, 1921, 30},
                                         Row{"inception-v4", 150, 42.62, 116.41, 4.70, 3456, 48}),
                         [](const auto& one) {
                           std::string name = one.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Blocks, CoverEveryParameterOfAModelOnce) {
  for (const auto& line : catalogue().lines()) {
    const doc::Workload w = workload(line.name, {.batch = 2});
    std::vector<std::int64_t> of_layer(w.layers.size());
    for (const doc::Gradient& g : w.gradients)
      of_layer[static_cast<std::size_t>(g.layer)] += g.elements;
    const bool tied = line.name == "gpt-small";  // its first layer, the token embedding
    ASSERT_EQ(w.blocks.size(), w.layers.size() - (tied ? 1 : 0)) << line.name;
    EXPECT_EQ(w.blocks.front().layer, tied ? 1 : 0);
    for (const Block& b : w.blocks)
      EXPECT_EQ(doc::gradient_elements(b), of_layer[static_cast<std::size_t>(b.layer)])
          << line.name << ": " << w.layers[static_cast<std::size_t>(b.layer)].name;
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
