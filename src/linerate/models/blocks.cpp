// Kronecker factors by a model's table. A has a row and a column for each input of the weight (and
// the bias), G for each output. An example: a convolution of 64 x 3 x 3 inputs and 128 outputs on a
// map of 56 x 56, with batch 32. A is 576 x 576, G is 128 x 128, and both are means over 32 * 56 *
// 56 rows.
#include "linerate/models/blocks.hpp"

#include <algorithm>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::models {
namespace {

using doc::Block;
using doc::BlockKind;

/// The block of a weight [outputs, inputs...] that acts at every one of `positions` of its output.
Block dense(const Node& node, std::int64_t positions) {
  const Shape& weight = node.parameters.front().shape;
  const bool bias = node.parameters.size() > 1;
  Block block;
  block.a = elements_of(weight) / weight.front() + (bias ? 1 : 0);
  block.g = weight.front();
  block.rows_a = block.rows_g = positions;
  return block;
}

/// The block of a table [rows, width]; each token takes one of its rows.
Block table(const Node& node) {
  const Shape& weight = node.parameters.front().shape;
  return {.kind = BlockKind::embedding,
          .a = weight[0],
          .g = weight[1],
          .rows_a = node.output.front(),
          .rows_g = node.output.front()};
}

// A norm layer: a 2 x 2 matrix for scale and shift of each unit.
Block units(const Node& node) {
  const std::int64_t count = node.parameters.front().shape.front();
  return {.kind = BlockKind::unit_wise, .g = count, .rows_g = elements_of(node.output) / count};
}

/// The block of a node, for one sample.
Block block_of(const Node& node) {
  switch (node.op) {
    case Op::conv2d:
      return dense(node, node.output[1] * node.output[2]);
    case Op::linear:
      return dense(node, elements_of(node.output) / node.output.back());
    case Op::batch_norm:
    case Op::layer_norm:
      return units(node);
    case Op::embedding:
    case Op::position_embedding:
    case Op::constant_embedding:
      return table(node);
    default:
      break;
  }
  throw InternalError("no factors are known for parameters of " + name_of(node.op));
}

/// Whether a later projection uses this embedding's weight. The weight's gradient is then mostly
/// the projection's. That would have a factor of the vocabulary's size, and the embedding's own
/// factors say nothing about it.
bool is_tied(const Description& model, std::size_t node) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [node](const Node& later) {
    return later.tied >= 0 && to_index(later.tied) == node;
  });
}

}  // namespace

std::vector<Block> blocks_of(const Description& model, std::int64_t batch) {
  std::vector<Block> blocks;
  int layer = 0;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    if (model.nodes[i].parameters.empty()) continue;
    const int mine = layer++;
    if (is_tied(model, i)) continue;
    Block& block = blocks.emplace_back(block_of(model.nodes[i]));
    block.layer = mine;
    block.rows_a *= batch;
    block.rows_g *= batch;
  }
  return blocks;
}

}  // namespace linerate::models
