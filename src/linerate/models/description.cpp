#include "linerate/models/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::models {

std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string to_text(const Shape& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t n : shape) parts.push_back(std::to_string(n));
  return join(parts, "x");
}

// Refuses sizes that no sample has, so that a typo does not ask for gigabytes.
Shape parse_shape(const std::string& text) {
  const auto wrong = [&]() -> UsageError {
    return UsageError(
        "--input: expected sizes such as 3x32x32, or a sequence length such as 128, found \"" +
        text + "\"");
  };
  Shape shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 9 ||
        part.find_first_not_of("0123456789") != std::string::npos)
      throw wrong();
    shape.push_back(std::stoll(part));
    if (shape.back() < 1) throw wrong();
    begin = end + 1;
  }
  constexpr double kMostValues = 1e9;
  double values = 1;
  for (const std::int64_t size : shape) values *= static_cast<double>(size);
  if (values > kMostValues)
    throw UsageError(
        fmt::format("--input: expected at most {:g} values in a sample, found {:g} in {}",
                    kMostValues, values, text));
  if (shape.size() > 3) throw wrong();
  return shape;
}

std::string name_of(Op op) {
  static constexpr std::array names = {
      "input",     "conv2d",    "linear",          "batch_norm", "layer_norm", "embedding",
      "embedding", "embedding", "linear",          "relu",       "gelu",       "tanh",
      "max_pool",  "avg_pool",  "global_avg_pool", "flatten",    "add",        "concat",
      "dropout",   "attention", "first_token"};
  return names.at(to_index(op));
}

std::int64_t Description::parameter_elements() const {
  std::int64_t total = 0;
  for (const Node& node : nodes)
    for (const TensorSpec& p : node.parameters) total += elements_of(p.shape);
  return total;
}

std::int64_t Description::buffer_bytes() const {
  std::int64_t total = 0;
  for (const Node& node : nodes)
    for (const TensorSpec& b : node.buffers)
      total += elements_of(b.shape) * (b.shape.empty() ? 8 : 4);
  return total;
}

double Description::flops() const {
  double total = 0;
  for (const Node& node : nodes) total += node.flops;
  return total;
}

// Each function appends a node with its output's shape, its parameters and its work. A multiply-add
// counts as two flops, of one sample and the forward pass alone. Counts are exact for layers with
// weights. Small operations have round numbers.

Builder::Builder(std::string model, const Shape& input, std::int64_t vocabulary) {
  const std::size_t wanted = vocabulary > 0 ? 1 : 3;
  if (input.size() != wanted)
    throw UsageError(model + ": --input: expected " +
                     (vocabulary > 0 ? "a sequence length such as 128"
                                     : "channels x height x width such as 3x32x32") +
                     ", found " + to_text(input));
  description_.name = std::move(model);
  description_.input = input;
  description_.vocabulary = vocabulary;
  append({.output = input});
}

int Builder::append(Node node) {
  description_.nodes.push_back(std::move(node));
  return static_cast<int>(description_.nodes.size()) - 1;
}

// The map that a window leaves: (size + 2 padding - window) / stride + 1, rounded down. 224 pixels
// under a window of 7 with stride 2 and padding 3 leave (224 + 6 - 7) / 2 + 1 = 112.
Shape Builder::slide(const Shape& in, std::int64_t channels, const Window& w,
                     const std::string& where) const {
  LINERATE_CHECK(in.size() == 3, where);
  const std::int64_t rows = in[1] + 2 * w.pad_height - w.height,
                     columns = in[2] + 2 * w.pad_width - w.width;
  if (rows < 0 || columns < 0)
    throw UsageError(description_.name + ": --input " + to_text(description_.input) +
                     " is too small: at " + where + " a window of " + std::to_string(w.height) +
                     "x" + std::to_string(w.width) + " meets a map of " + to_text(in) +
                     "; choose a larger input");
  return {channels, rows / w.stride + 1, columns / w.stride + 1};
}

int Builder::conv2d(const std::string& name, int from, std::int64_t channels, Window window,
                    bool bias) {
  const Shape& in = shape(from);
  Node node{.op = Op::conv2d, .name = name, .inputs = {from}, .window = window};
  node.output = slide(in, channels, window, name);
  return weigh(std::move(node), {channels, in[0], window.height, window.width}, bias);
}

int Builder::linear(const std::string& name, int from, std::int64_t outputs, bool bias) {
  const std::int64_t inputs = shape(from).back();
  Node node{.op = Op::linear, .name = name, .inputs = {from}, .output = shape(from)};
  node.output.back() = outputs;
  return weigh(std::move(node), {outputs, inputs}, bias);
}

// Appends a node with a weight [outputs, inputs...], of which each output reads all inputs.
int Builder::weigh(Node node, const Shape& weight, bool bias) {
  const double inputs = static_cast<double>(elements_of(weight) / weight.front());
  node.parameters = {{"weight", weight}};
  if (bias) node.parameters.push_back({"bias", {weight.front()}});
  node.flops = static_cast<double>(elements_of(node.output)) * (2.0 * inputs + (bias ? 1 : 0));
  return append(std::move(node));
}

int Builder::tied_linear(int from, int embedding) {
  const Shape& weight = description_.nodes[to_index(embedding)].parameters.front().shape;
  Node node{.op = Op::tied_linear, .inputs = {from}, .tied = embedding, .output = shape(from)};
  node.output.back() = weight[0];
  node.flops = 2.0 * static_cast<double>(elements_of(node.output)) * static_cast<double>(weight[1]);
  return append(std::move(node));
}

int Builder::batch_norm(const std::string& name, int from, double epsilon) {
  const std::int64_t channels = shape(from)[0];
  const int node = norm(Op::batch_norm, name, from, channels, epsilon);
  description_.nodes.back().buffers = {
      {"running_mean", {channels}}, {"running_var", {channels}}, {"num_batches_tracked", {}}};
  return node;
}

int Builder::layer_norm(const std::string& name, int from, double epsilon) {
  return norm(Op::layer_norm, name, from, shape(from).back(), epsilon);
}

// Each of the units has a scale and a shift.
int Builder::norm(Op op, const std::string& name, int from, std::int64_t units, double epsilon) {
  Node node{.op = op, .name = name, .inputs = {from}, .epsilon = epsilon, .output = shape(from)};
  node.parameters = {{"weight", {units}}, {"bias", {units}}};
  node.flops = 8.0 * static_cast<double>(
                         elements_of(node.output));  // mean, variance, normalise, scale, shift
  return append(std::move(node));
}

int Builder::embedding(const std::string& name, int from, std::int64_t rows, std::int64_t width,
                       Op op) {
  if (op == Op::position_embedding && shape(from)[0] > rows)
    throw UsageError(description_.name + ": --input: expected at most " + std::to_string(rows) +
                     " positions, found " + to_text(shape(from)));
  Node node{.op = op, .name = name, .inputs = {from}, .output = shape(from)};
  node.output.push_back(width);
  node.parameters = {{"weight", {rows, width}}};
  return append(std::move(node));
}

// An operation on each element; all inputs have one shape.
int Builder::pointwise(Op op, std::vector<int> inputs, double flops_per_element) {
  Node node{.op = op, .output = shape(inputs.front())};
  for (const int i : inputs)
    LINERATE_CHECK(shape(i) == node.output, description_.name + ": " + to_text(shape(i)) +
                                                " next to " + to_text(node.output));
  node.inputs = std::move(inputs);
  node.flops = flops_per_element * static_cast<double>(elements_of(node.output));
  return append(std::move(node));
}

int Builder::dropout(int from, double rate) {
  const int node = pointwise(Op::dropout, {from}, 2);
  description_.nodes.back().rate = rate;
  return node;
}

int Builder::pool(Op op, int from, Window window) {
  Node node{.op = op, .inputs = {from}, .window = window};
  node.output = slide(shape(from), shape(from)[0], window, name_of(op));
  node.flops = static_cast<double>(elements_of(node.output) * window.height * window.width);
  return append(std::move(node));
}

int Builder::global_avg_pool(int from, std::int64_t size) {
  Node node{.op = Op::global_avg_pool, .inputs = {from}, .output = {shape(from)[0], size, size}};
  node.flops = static_cast<double>(elements_of(shape(from)));
  return append(std::move(node));
}

int Builder::flatten(int from) {
  return append({.op = Op::flatten, .inputs = {from}, .output = {elements_of(shape(from))}});
}

int Builder::concat(const std::vector<int>& from) {
  Node node{.op = Op::concat, .inputs = from, .output = shape(from.front())};
  node.output[0] = 0;
  for (const int i : from) node.output[0] += shape(i)[0];
  return append(std::move(node));
}

// `from` is one node with q, k and v next to each other, or three nodes.
int Builder::attention(const std::vector<int>& from, std::int64_t heads, bool causal,
                       double dropout) {
  Node node{.op = Op::attention,
            .inputs = from,
            .heads = heads,
            .causal = causal,
            .rate = dropout,
            .output = shape(from.front())};
  if (from.size() == 1) node.output.back() /= 3;
  const double tokens = static_cast<double>(node.output[0]),
               width = static_cast<double>(node.output[1]);
  // q k^T and its product with v: 2 T^2 D each; the softmax: about 5 per score and head.
  node.flops = 4.0 * tokens * tokens * width + 5.0 * tokens * tokens * static_cast<double>(heads);
  return append(std::move(node));
}

int Builder::first_token(int from) {
  return append({.op = Op::first_token, .inputs = {from}, .output = {shape(from).back()}});
}

Description Builder::finish(Initialisation initialisation) && {
  description_.initialisation = initialisation;
  description_.classes = description_.output().back();
  return std::move(description_);
}

// Kronecker factors by a model's table. A has a row and a column for each input of the weight (and
// the bias), G for each output. An example: a convolution of 64 x 3 x 3 inputs and 128 outputs on a
// map of 56 x 56, with batch 32. A is 576 x 576, G is 128 x 128, and both are means over 32 * 56 *
// 56 rows.

namespace {

using doc::Block;
using doc::BlockKind;

/// The block of a node, for one sample. A weight [outputs, inputs...] acts at every position of its
/// output, and each token takes one row of a table [rows, width]. Each unit of a norm layer has a
/// 2 x 2 matrix for scale and shift.
Block block_of(const Node& node) {
  const Shape& weight = node.parameters.front().shape;
  const std::int64_t units = weight.front(), rows = elements_of(node.output) / units;
  const std::int64_t bias = node.parameters.size() > 1 ? 1 : 0, tokens = node.output.front();
  switch (node.op) {
    case Op::conv2d:
    case Op::linear:
      return {.a = elements_of(weight) / units + bias, .g = units, .rows_a = rows, .rows_g = rows};
    case Op::batch_norm:
    case Op::layer_norm:
      return {.kind = BlockKind::unit_wise, .g = units, .rows_g = rows};
    case Op::embedding:
    case Op::position_embedding:
    case Op::constant_embedding:
      return {.kind = BlockKind::embedding,
              .a = weight[0],
              .g = weight[1],
              .rows_a = tokens,
              .rows_g = tokens};
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
