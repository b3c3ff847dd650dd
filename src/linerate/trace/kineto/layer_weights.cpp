// K-FAC needs the shape of each layer's factors, and a trace has no layers. It has operators of the
// backward pass with the shapes of their inputs. convolution_backward gets the output's gradient,
// the input and the weight; mm gets the two matrices whose product is the weight's gradient. From
// these follow the sides of both factors, and the rows that they sum over.
//
// An operator is tied to a layer by the gradient that comes next and has the weight's shape.
// Example: mm of [512, 64] and [64, 256] may be the gradient of a weight 512 x 256 over 64 rows. If
// the next AccumulateGrad has the shape [512, 256], it is, and the factors are of sides 256 and
// 512. If no gradient of the shape comes, the product was the gradient of an input.
#include "linerate/trace/kineto/layer_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

using Shapes = std::vector<TensorShape>;

/// What documents hold, and more than any network has.
constexpr std::int64_t kRowLimit = std::int64_t{1} << 48, kMostGroups = 1 << 16;
constexpr std::int64_t kLargestMatrix = 1 << 20, kLargestDiagonal = 1 << 23;

bool is_possible(const doc::Block& block) {
  return block.a <= kLargestDiagonal && block.g <= kLargestDiagonal &&
         largest_dimension(block) <= kLargestMatrix;
}

/// Of (gradient of the output, input, weight). Example: a weight of [128, 64, 3, 3], an output of
/// [32, 128, 14, 14] and an input of [32, 64, 14, 14]. There is one group, a is 64 x 3 x 3 = 576
/// and g is 128. Both factors sum over 32 x 14 x 14 = 6272 positions.
std::optional<WeightUse> convolution(const Shapes& shapes) {
  if (shapes.size() < 3) return std::nullopt;
  const TensorShape &output = shapes[0], &input = shapes[1], &weight = shapes[2];
  if (weight.size() < 3 || output.size() != weight.size() || input.size() != weight.size())
    return std::nullopt;
  const std::int64_t elements = elements_of(weight), outputs = weight[0];
  // A transposed one has its inputs first.
  if (elements <= 0 || elements_of(output) <= 0 || output[1] != outputs) return std::nullopt;
  const std::int64_t groups = input[1] / weight[1];
  if (groups < 1 || groups > kMostGroups || groups * weight[1] != input[1] || outputs % groups != 0)
    return std::nullopt;
  const std::int64_t positions = elements_of(output) / outputs;
  return WeightUse{.weight = weight,
                   .block = {.a = elements / outputs,
                             .g = outputs / groups,
                             .groups = static_cast<int>(groups),
                             .rows_a = positions,
                             .rows_g = positions}};
}

/// A product [p, n] x [n, q]. It is the gradient of a weight p x q or q x p over n rows, or of an
/// input. The gradient that comes next tells which.
std::optional<WeightUse> product(const Shapes& shapes) {
  if (shapes.size() < 2 || shapes[0].size() != 2 || shapes[1].size() != 2) return std::nullopt;
  const std::int64_t p = shapes[0][0], n = shapes[0][1], q = shapes[1][1];
  if (shapes[1][0] != n || n < 1) return std::nullopt;
  return WeightUse{.weight = {std::min(p, q), std::max(p, q)}, .block = {.rows_a = n, .rows_g = n}};
}

/// The rows of its table are known with the table's gradient.
std::optional<WeightUse> embedding(const Shapes& shapes) {
  const TensorShape& output = shapes.front();
  if (output.empty() || elements_of(output) <= 0) return std::nullopt;
  const std::int64_t rows = elements_of(output) / output.back();
  return WeightUse{
      .weight = {},
      .block = {
          .kind = doc::BlockKind::embedding, .g = output.back(), .rows_a = rows, .rows_g = rows}};
}

/// A norm layer has a 2 x 2 factor for each unit. `weight`: which of the shapes is the weight's.
std::optional<WeightUse> norm(const Shapes& shapes, std::size_t weight) {
  if (shapes.size() <= weight || shapes[weight].empty()) return std::nullopt;  // it has no weight
  const std::int64_t units = elements_of(shapes[weight]), elements = elements_of(shapes[0]);
  if (units <= 0 || elements <= 0) return std::nullopt;
  return WeightUse{
      .weight = shapes[weight],
      .block = {.kind = doc::BlockKind::unit_wise, .g = units, .rows_g = elements / units}};
}

std::optional<WeightUse> use_of(LayerOperator by, const Shapes& shapes) {
  switch (by) {
    case LayerOperator::convolution:
      return convolution(shapes);
    case LayerOperator::product:
      return product(shapes);
    case LayerOperator::embedding:
      return embedding(shapes);
    case LayerOperator::batch_norm:
      return norm(shapes, 2);
    case LayerOperator::layer_norm:
      return norm(shapes, 5);
    case LayerOperator::checkpoint:
    case LayerOperator::none:
      break;
  }
  return std::nullopt;
}

TensorShape ascending(TensorShape shape) {
  std::sort(shape.begin(), shape.end());
  return shape;
}

bool reads(const WeightUse& use, const TensorShape& weight) {
  switch (use.by) {
    case LayerOperator::product:
      return weight.size() == 2 && ascending(weight) == use.weight;
    case LayerOperator::embedding:
      return weight.size() == 2 && weight[1] == use.block.g;
    default:
      return weight == use.weight;
  }
}

/// Fills in what its gradient alone says.
void set_weight(WeightUse& use, const TensorShape& weight) {
  if (use.by == LayerOperator::product) use.block.a = weight[1], use.block.g = weight[0];
  if (use.by == LayerOperator::embedding) use.block.a = weight[0], use.weight = weight;
}

/// The block of a layer whose gradients have `elements` in all; absent if none has. Elements beyond
/// the weight's must be a bias of one for each output, which widens the input's factor by one. A
/// weight stands as [outputs, inputs]. If the bias has as many elements as the inputs, it stands
/// the other way, and the sides are swapped.
std::optional<doc::Block> of_elements(const WeightUse& use, std::int64_t elements) {
  doc::Block block = use.block;
  const std::int64_t more = elements - gradient_elements(block);
  const bool has_factors = block.kind == doc::BlockKind::kronecker;
  if (has_factors && use.by == LayerOperator::product && more == block.a && more != block.g)
    std::swap(block.a, block.g);
  if (has_factors && more == block.groups * block.g) ++block.a;
  if (gradient_elements(block) != elements || !is_possible(block)) return std::nullopt;
  return block;
}

std::string kind_of(const WeightUse& use) {
  switch (use.by) {
    case LayerOperator::convolution:
      return fmt::format("conv{}d", use.weight.size() - 2);
    case LayerOperator::product:
      return "linear";
    case LayerOperator::embedding:
      return "embedding";
    case LayerOperator::layer_norm:
      return "layer_norm";
    default:
      return "batch_norm";
  }
}

}  // namespace

void LayerWeights::node(std::span<const CpuOp* const> operators, std::int64_t tid) {
  told_.push_back(false);
  for (const CpuOp* op : operators) {
    if (op->tid != tid || op->shapes < 0) continue;
    const LayerOperator by = t_.names[op->name].layer;
    if (by == LayerOperator::checkpoint) checkpoints_.push_back(op);
    auto use = use_of(by, t_.shapes[to_index(op->shapes)]);
    if (!use) continue;
    use->by = by;
    use->node = told_.size() - 1;
    uses_.push_back(std::move(*use));
  }
}

bool LayerWeights::is_input(const CpuOp& gradient) const {
  const auto shape_of = [this](const CpuOp& op) -> const TensorShape& {
    return t_.shapes[to_index(op.shapes)].front();
  };
  const std::int64_t at = gradient.span.start_ns;
  return std::any_of(checkpoints_.begin(), checkpoints_.end(), [&](const CpuOp* part) {
    return part->tid == gradient.tid && part->span.start_ns <= at && at < part->span.end_ns &&
           shape_of(gradient).size() > 1 && shape_of(gradient) == shape_of(*part);
  });
}

bool LayerWeights::tells_of(const TensorShape& gradient) {
  for (std::size_t i = uses_.size(); i-- > 0 && uses_[i].node + 1 == told_.size();)
    if (!uses_[i].layer && elements_of(gradient) > 0 && reads(uses_[i], gradient)) {
      found_ = i;
      set_weight(uses_[i], gradient);
      return true;
    }
  return false;
}

void LayerWeights::belongs_to(std::size_t layer) {
  uses_[found_].layer = layer;
  told_.back() = true;
}

/// Rows by layer, summed over all uses of a parameter. A parameter that is used several times has
/// its gradient after the last use. The uses before belong to no gradient, and are given to
/// parameters of the same shape in turn.
///
/// Example. Parameters P and Q of one shape are used twice, and the nodes run as P, Q, P, Q. The
/// gradient of P comes after the third, that of Q after the fourth. From the end, the fourth is Q's
/// and the third is P's. With two parameters incomplete, the second takes the layer of the fourth,
/// Q, and the first that of the third, P.
std::vector<std::int64_t> LayerWeights::rows_by_layer(std::size_t layers) const {
  std::map<std::pair<LayerOperator, TensorShape>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const WeightUse& use = uses_[i];
    if (!use.layer && (!told_nothing(use) || use.weight.empty())) continue;
    std::vector<std::size_t>& others = alike[{use.by, use.weight}];
    // The gradient of a node's input may have its weight's shape, too.
    if (use.layer || others.empty() || uses_[others.back()].node != use.node) others.push_back(i);
  }
  std::vector<std::int64_t> rows(layers, 0);
  for (const auto& [weight, uses] : alike) {
    std::vector<std::optional<std::size_t>> layer(uses.size());
    std::size_t incomplete = 0;
    for (std::size_t k = uses.size(); k-- > 0;) {
      const WeightUse& use = uses_[uses[k]];
      layer[k] = use.layer || incomplete == 0 ? use.layer : layer[k + incomplete];
      if (use.layer) ++incomplete;
      if (!layer[k]) continue;
      std::int64_t& sum = rows[*layer[k]];
      sum = std::min(kRowLimit, sum + use.block.rows_g);
    }
  }
  return rows;
}

/// A layer gets its block if the gradients that it made have the block's number of elements. An
/// embedding may share its table with a product (a projection to words). It gets none, because its
/// gradient is the sum of both uses.
void LayerWeights::describe(std::vector<LayerRecord>& layers,
                            const std::vector<GradientRecord>& gradients) const {
  std::vector<std::int64_t> elements(layers.size(), 0);
  for (const GradientRecord& g : gradients) elements[to_index(g.layer)] += g.elements;
  std::set<TensorShape> projections;
  for (const WeightUse& use : uses_)
    if (use.by == LayerOperator::product && told_nothing(use)) projections.insert(use.weight);
  const std::vector<std::int64_t> rows = rows_by_layer(layers.size());
  for (const WeightUse& use : uses_) {
    if (!use.layer) continue;
    if (use.by == LayerOperator::embedding && projections.contains(ascending(use.weight))) continue;
    LayerRecord& layer = layers[*use.layer];
    layer.block = of_elements(use, elements[*use.layer]);
    if (!layer.block) continue;
    layer.kind = kind_of(use);
    layer.block->rows_g = rows[*use.layer];
    if (use.block.kind != doc::BlockKind::unit_wise) layer.block->rows_a = layer.block->rows_g;
  }
}

}  // namespace linerate::trace
