#include "linerate/models/blocks.hpp"

#include <algorithm>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::models {
namespace {

using doc::Block;
using doc::BlockKind;

/// A weight [outputs, inputs...] that acts at every position of its output.
Block dense(const Node& node, std::int64_t positions) {
  const Shape& weight = node.parameters.front().shape;
  const bool bias = node.parameters.size() > 1;
  Block block;
  block.a = elements_of(weight) / weight.front() + (bias ? 1 : 0);
  block.g = weight.front();
  block.rows_a = block.rows_g = positions;
  return block;
}

/// A table [rows, width]; each token takes one row.
Block table(const Node& node) {
  const Shape& weight = node.parameters.front().shape;
  return {.kind = BlockKind::embedding,
          .a = weight[0],
          .g = weight[1],
          .rows_a = node.output.front(),
          .rows_g = node.output.front()};
}

Block units(const Node& node) {
  const std::int64_t count = node.parameters.front().shape.front();
  return {.kind = BlockKind::unit_wise, .g = count, .rows_g = elements_of(node.output) / count};
}

/// For one sample.
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

/// Its gradient is mostly the projection's, whose factor would have the vocabulary's size; the
/// embedding's own factors say nothing about it.
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
