// Backward passes from a trace's own records. Autograd runs nodes, one for each operator of the
// forward pass, and AccumulateGrad once a gradient is complete. AccumulateGrad has the gradient as
// its input, which gives the size. The node before it is the layer.
//
// Example. The host runs the node Addmm at 1 ms, AccumulateGrad of the bias at 1.2 ms, and of the
// weight at 1.3 ms. The node Relu follows at 1.5 ms. The device is later: what was launched by 1.2
// ms is done at 5 ms, and what was launched by 1.3 ms at 7 ms. So the layer "Addmm" has two
// gradients, ready at 5 and 7 ms. Times of the device count, because a bucket cannot leave before.
//
// A step may hold several passes. They add up if all have the same gradients and forward operators
// run between them. They are turns if the parameters are updated between them.
#include "linerate/trace/kineto/kineto_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/doc/block.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {
namespace {

/// "autograd::engine::evaluate_function: AddmmBackward0" -> "Addmm"; empty for views and casts of a
/// weight, which belong to their neighbour.
std::string layer_kind(std::string_view name) {
  constexpr std::string_view kPrefix = "autograd::engine::evaluate_function: ";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  const std::size_t end = name.find("Backward");
  const std::string_view kind = name.substr(0, end);
  if (end == std::string_view::npos || kind == "T" || kind == "View" || kind == "Transpose" ||
      kind == "Permute" || kind == "ToCopy")
    return {};
  return std::string(kind);
}

/// Rows of a gradient as Workloads have them: the first dimension, or 1 for a vector.
std::int64_t rows_of(const TensorShape& shape) {
  return shape.size() > 1 && elements_of(shape) > 0 ? shape.front() : 1;
}

// K-FAC needs the shape of each layer's factors, and a trace has no layers. It has operators of the
// backward pass with the shapes of their inputs. convolution_backward gets the output's gradient,
// the input and the weight; mm gets the two matrices whose product is the weight's gradient. From
// these follow the sides of both factors, and the rows that they sum over.
//
// An operator is tied to a layer by the gradient that comes next and has the weight's shape.
// Example: mm of [512, 64] and [64, 256] may be the gradient of a weight 512 x 256 over 64 rows. If
// the next AccumulateGrad has the shape [512, 256], it is, and the factors are of sides 256 and
// 512. If no gradient of the shape comes, the product was the gradient of an input.

/// One use of a weight.
struct WeightUse {
  std::string kind;      // of the layer
  TensorShape weight{};  // of a product: ascending; of an embedding: empty until its gradient came
  doc::Block block;
  LayerOperator by = LayerOperator::none;
  std::size_t node = 0;
  std::optional<std::size_t> layer{};  // of the gradient that it computed, if that came next
};

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
  return WeightUse{.kind = fmt::format("conv{}d", weight.size() - 2),
                   .weight = weight,
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
  return WeightUse{.kind = "linear",
                   .weight = {std::min(p, q), std::max(p, q)},
                   .block = {.rows_a = n, .rows_g = n}};
}

/// The rows of its table are known with the table's gradient.
std::optional<WeightUse> embedding(const Shapes& shapes) {
  const TensorShape& output = shapes.front();
  if (output.empty() || elements_of(output) <= 0) return std::nullopt;
  const std::int64_t rows = elements_of(output) / output.back();
  return WeightUse{
      .kind = "embedding",
      .block = {
          .kind = doc::BlockKind::embedding, .g = output.back(), .rows_a = rows, .rows_g = rows}};
}

/// A norm layer has a 2 x 2 factor for each unit. `weight`: which of the shapes is the weight's.
std::optional<WeightUse> norm(const char* kind, const Shapes& shapes, std::size_t weight) {
  if (shapes.size() <= weight || shapes[weight].empty()) return std::nullopt;  // it has no weight
  const std::int64_t units = elements_of(shapes[weight]), elements = elements_of(shapes[0]);
  if (units <= 0 || elements <= 0) return std::nullopt;
  return WeightUse{
      .kind = kind,
      .weight = shapes[weight],
      .block = {.kind = doc::BlockKind::unit_wise, .g = units, .rows_g = elements / units}};
}

std::optional<WeightUse> use_of(LayerOperator by, const Shapes& shapes) {
  if (by == LayerOperator::convolution) return convolution(shapes);
  if (by == LayerOperator::product) return product(shapes);
  if (by == LayerOperator::embedding) return embedding(shapes);
  if (by == LayerOperator::batch_norm) return norm("batch_norm", shapes, 2);
  if (by == LayerOperator::layer_norm) return norm("layer_norm", shapes, 5);
  return std::nullopt;
}

TensorShape ascending(TensorShape shape) {
  std::ranges::sort(shape);
  return shape;
}

bool reads(const WeightUse& use, const TensorShape& weight) {
  if (use.by == LayerOperator::product)
    return weight.size() == 2 && ascending(weight) == use.weight;
  if (use.by == LayerOperator::embedding) return weight.size() == 2 && weight[1] == use.block.g;
  return weight == use.weight;
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

/// Collects uses of weights during one backward pass. The caller reports nodes of autograd, and
/// asks about gradients, in the order in which they ran.
class LayerWeights {
 public:
  explicit LayerWeights(const KinetoTrace& trace) : t_(trace) {}

  /// A node ran these operators, of those on its thread.
  void node(std::span<const KinetoEvent* const> operators, std::int64_t tid) {
    told_.push_back(false);
    for (const KinetoEvent* op : operators) {
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
  /// Whether it is the gradient of the input of a part that is run anew (reentrant checkpointing).
  /// Such an input is a leaf like a parameter. As a rule it has the shape of the part's output.
  bool is_input(const KinetoEvent& gradient) const {
    const auto shape_of = [this](const KinetoEvent& op) -> const TensorShape& {
      return t_.shapes[to_index(op.shapes)].front();
    };
    const std::int64_t at = gradient.span.start_ns;
    return std::ranges::any_of(checkpoints_, [&](const KinetoEvent* part) {
      return part->tid == gradient.tid && part->span.start_ns <= at && at < part->span.end_ns &&
             shape_of(gradient).size() > 1 && shape_of(gradient) == shape_of(*part);
    });
  }
  /// Whether the last node used a weight of this shape that has no gradient yet. If true, the
  /// caller calls belongs_to() next.
  bool tells_of(const TensorShape& gradient) {
    for (std::size_t i = uses_.size(); i-- > 0 && uses_[i].node + 1 == told_.size();)
      if (!uses_[i].layer && elements_of(gradient) > 0 && reads(uses_[i], gradient)) {
        found_ = i;
        set_weight(uses_[i], gradient);
        return true;
      }
    return false;
  }
  void belongs_to(std::size_t layer) {
    uses_[found_].layer = layer;
    told_.back() = true;
  }

  /// Kinds and blocks of the layers whose operators tell their factors. Nothing of a layer whose
  /// gradients are others than its block's, nor of an embedding that a projection shares.
  /// A layer gets its block if the gradients that it made have the block's number of elements. An
  /// embedding may share its table with a product (a projection to words). It gets none, because
  /// its gradient is the sum of both uses.
  void describe(std::vector<LayerRecord>& layers,
                const std::vector<GradientRecord>& gradients) const {
    std::vector<std::int64_t> elements(layers.size(), 0);
    for (const GradientRecord& g : gradients) elements[to_index(g.layer)] += g.elements;
    std::set<TensorShape> projections;
    for (const WeightUse& use : uses_)
      if (use.by == LayerOperator::product && told_nothing(use)) projections.insert(use.weight);
    const std::vector<std::int64_t> rows = rows_by_layer(layers.size());
    for (const WeightUse& use : uses_) {
      if (!use.layer) continue;
      if (use.by == LayerOperator::embedding && projections.contains(ascending(use.weight)))
        continue;
      LayerRecord& layer = layers[*use.layer];
      layer.block = of_elements(use, elements[*use.layer]);
      if (!layer.block) continue;
      layer.kind = use.kind;
      layer.block->rows_g = rows[*use.layer];
      if (use.block.kind != doc::BlockKind::unit_wise) layer.block->rows_a = layer.block->rows_g;
    }
  }

 private:
  /// Rows by layer, summed over all uses of a parameter. A parameter that is used several times has
  /// its gradient after the last use. The uses before belong to no gradient, and are given to
  /// parameters of the same shape in turn.
  ///
  /// Example. Parameters P and Q of one shape are used twice, and the nodes run as P, Q, P, Q. The
  /// gradient of P comes after the third, that of Q after the fourth. From the end, the fourth is
  /// Q's and the third is P's. With two parameters incomplete, the second takes the layer of the
  /// fourth, Q, and the first that of the third, P.
  std::vector<std::int64_t> rows_by_layer(std::size_t layers) const {
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

  bool told_nothing(const WeightUse& use) const { return !use.layer && !told_[use.node]; }

  const KinetoTrace& t_;
  std::vector<WeightUse> uses_;  // as they ran
  std::vector<const KinetoEvent*> checkpoints_;
  std::vector<bool> told_;  // by node: whether a gradient is that of one of its uses
  std::size_t found_ = 0;   // by tells_of()
};

// ---- passes ----

using Ops = std::vector<const KinetoEvent*>;

/// Those of `ops`, which are sorted, that began within `window`.
std::span<const KinetoEvent* const> within(const Ops& ops, Span window) {
  const auto at = [&ops](std::int64_t time) {
    return std::ranges::lower_bound(ops, time, {}, start_of);
  };
  return {at(window.start_ns), at(window.end_ns)};
}

/// Reads the passes of a trace step by step. The constructor sorts the nodes and operators of the
/// whole trace once, so a step finds its own by binary search.
class BackwardReader {
 public:
  BackwardReader(const KinetoTrace& t, const GradientCalls& calls)
      : t_(t), calls_(calls), clock_(t) {
    for (const KinetoEvent& op : t.ops) {
      if (is_gradient(op) || is_node(op)) nodes_.push_back(&op);
      if (t.names[op.name].layer != LayerOperator::none) operators_.push_back(&op);
    }
    std::ranges::stable_sort(nodes_, {}, start_of);
    std::ranges::stable_sort(operators_, {}, start_of);
  }

  void add_step(std::int32_t step, std::vector<BackwardPass>& passes) {
    const Span window = t_.steps[to_index(step)].span;
    const std::span<const KinetoEvent* const> nodes = within(nodes_, window);
    if (!all_gradients_have_sizes(nodes)) return;
    const std::vector<Ops> turns = in_turns(window, nodes);
    const bool several = turns.size() > 1;
    for (const Ops& part :
         several ? std::vector<Ops>(1, last_passes_of(turns)) : passes_in(nodes)) {
      BackwardPass pass = pass_of(part, several ? window.start_ns : INT64_MAX);
      pass.step = step;
      if (!pass.gradients.empty()) passes.push_back(std::move(pass));
    }
  }

 private:
  /// Nodes by the turn of the step that they are of, if each of several has gradients.
  std::vector<Ops> in_turns(Span step, std::span<const KinetoEvent* const> nodes) const {
    std::vector<Ops> turns(1);
    for (const KinetoEvent* op : nodes) {
      const auto turn = to_index(calls_.turn_of(step.start_ns, op->span.start_ns));
      if (turn >= turns.size()) turns.resize(turn + 1);
      turns[turn].push_back(op);
    }
    const bool all = std::ranges::all_of(turns, [this](const Ops& ops) {
      return std::ranges::any_of(ops, [this](const KinetoEvent* op) { return is_gradient(*op); });
    });
    return all ? turns : std::vector<Ops>{Ops(nodes.begin(), nodes.end())};
  }

  /// Passes of a turn add up, so their gradients are exchanged after the last one.
  Ops last_passes_of(const std::vector<Ops>& turns) {
    Ops all;
    for (const Ops& turn : turns) {
      const Ops last = passes_in(turn).back();
      all.insert(all.end(), last.begin(), last.end());
    }
    return all;
  }

  bool is_gradient(const KinetoEvent& op) const {
    return t_.names[op.name].kind == NameKind::accumulate_grad;
  }
  bool is_node(const KinetoEvent& op) const { return t_.names[op.name].kind == NameKind::evaluate; }

  bool all_gradients_have_sizes(std::span<const KinetoEvent* const> nodes) const {
    return std::ranges::none_of(nodes, [this](const KinetoEvent* op) {
      return is_gradient(*op) && (op->shapes < 0 || elements_of(shape_of(*op)) < 0);
    });
  }
  const TensorShape& shape_of(const KinetoEvent& gradient) const {
    return t_.shapes[to_index(gradient.shapes)].front();
  }

  std::vector<Ops> passes_in(std::span<const KinetoEvent* const> nodes) {
    if (sizes_repeat(nodes)) {
      std::vector<Ops> parts = parts_of(nodes);
      if (same_gradients(parts)) return parts;
    }
    return {Ops(nodes.begin(), nodes.end())};
  }

  /// Whether these nodes may be several passes over the same gradients: then the counts of all
  /// sizes have a common divisor above 1. It is a cheap test that spares most steps the cut into
  /// parts.
  bool sizes_repeat(std::span<const KinetoEvent* const> nodes) const {
    std::map<std::int64_t, std::int64_t> times;
    for (const KinetoEvent* op : nodes)
      if (is_gradient(*op)) ++times[elements_of(shape_of(*op))];
    std::int64_t common = 0;
    for (const auto& [elements, n] : times) common = std::gcd(common, n);
    return common > 1;
  }

  /// Operators of the thread that marks the steps, outside of autograd.
  const Ops& forward() {
    if (!forward_.empty()) return forward_;
    std::vector<Span> engine;
    for (const KinetoEvent* op : nodes_)
      if (op->tid == t_.step_thread) engine.push_back(op->span);
    const SpanSet busy = union_of(std::move(engine));
    for (const KinetoEvent& op : t_.ops)
      if (op.tid == t_.step_thread && t_.names[op.name].kind == NameKind::plain &&
          clipped(busy, {op.span.start_ns, op.span.start_ns + 1}).empty())
        forward_.push_back(&op);
    std::ranges::stable_sort(forward_, {}, start_of);
    return forward_;
  }

  /// Cuts nodes at operators outside of autograd on the thread that marks the steps: there a
  /// forward pass ran again. A part without gradients is no pass, so it goes on after the cut. If
  /// it is the last one, it is dropped.
  std::vector<Ops> parts_of(std::span<const KinetoEvent* const> nodes) {
    std::vector<Ops> parts;
    bool has_gradients = true;  // of the last part
    std::int64_t after = INT64_MIN;
    for (const KinetoEvent* op : nodes) {
      const bool cut = !within(forward(), {after, op->span.start_ns}).empty();
      if (parts.empty() || (cut && has_gradients)) parts.emplace_back(), has_gradients = false;
      parts.back().push_back(op);
      has_gradients |= is_gradient(*op);
      after = op->span.start_ns;
    }
    if (!has_gradients && parts.size() > 1) parts.pop_back();
    return parts;
  }

  bool same_gradients(const std::vector<Ops>& parts) const {
    const auto sizes = [this](const Ops& part) {
      std::vector<std::int64_t> all;
      for (const KinetoEvent* op : part)
        if (is_gradient(*op)) all.push_back(elements_of(shape_of(*op)));
      std::ranges::sort(all);
      return all;
    };
    const std::vector<std::int64_t> first = sizes(parts.front());
    return std::ranges::all_of(parts, [&](const Ops& part) { return sizes(part) == first; });
  }

  /// Those that the node ran itself, not within the next one.
  std::span<const KinetoEvent* const> operators_of(const Ops& nodes, std::size_t i) const {
    Span window = nodes[i]->span;
    if (i + 1 < nodes.size()) window.end_ns = std::min(window.end_ns, nodes[i + 1]->span.start_ns);
    return within(operators_, window);
  }

  /// One pass from its nodes, in the order in which they ran. Each gradient is ready when the work
  /// launched before its AccumulateGrad is done, and not before the previous one. The time between
  /// two gradients is the layer's. Turns count from `turns_from`; INT64_MAX: the step has none.
  BackwardPass pass_of(const Ops& nodes, std::int64_t turns_from) const {
    BackwardPass pass;
    std::string kind;
    bool fresh = false;
    if (nodes.empty()) return pass;
    LayerWeights weights(t_);
    const std::int64_t begin = clock_.done_by(nodes.front()->span.start_ns);
    std::int64_t node_begin = begin;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const KinetoEvent* op = nodes[i];
      const NameInfo& name = t_.names[op->name];
      if (name.kind == NameKind::evaluate) {
        std::string k = layer_kind(name.text);
        if (k.empty()) continue;
        kind = std::move(k), fresh = true;
        weights.node(operators_of(nodes, i), op->tid);
        continue;
      }
      if (weights.is_input(*op)) continue;
      const TensorShape& shape = shape_of(*op);
      const bool is_weight = weights.tells_of(shape);
      // A compiled graph is one node, whose gradients come in any order: layers are unknown.
      if (pass.layers.empty() || kind == "CompiledFunction") fresh = true;
      const std::int64_t ready = std::max(clock_.done_by(op->span.start_ns), node_begin);
      if (std::exchange(fresh, false))
        pass.layers.push_back({.kind = kind, .backward_ns = ready - node_begin});
      else
        pass.layers.back().backward_ns += ready - node_begin;
      if (is_weight) weights.belongs_to(pass.layers.size() - 1);
      node_begin = ready;
      pass.gradients.push_back({.elements = elements_of(shape),
                                .dtype = op->dtype,
                                .ready_ns = ready - begin,
                                .layer = static_cast<int>(pass.layers.size()) - 1,
                                .rows = rows_of(shape),
                                .turn = calls_.turn_of(turns_from, op->span.start_ns)});
    }
    pass.span = {begin, node_begin};
    weights.describe(pass.layers, pass.gradients);
    return pass;
  }

  const KinetoTrace& t_;
  const GradientCalls& calls_;
  DeviceClock clock_;
  Ops nodes_;      // of autograd, with the gradients between them
  Ops operators_;  // that tell the shapes of layers
  Ops forward_;    // forward(), once asked for
};

}  // namespace

std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls) {
  std::vector<BackwardPass> passes;
  const bool any = std::ranges::any_of(trace.ops, [&](const KinetoEvent& op) {
    return trace.names[op.name].kind == NameKind::accumulate_grad;
  });
  if (!any || trace.steps.empty()) return passes;
  BackwardReader reader(trace, calls);
  for (std::size_t s = 0; s < trace.steps.size(); ++s)
    reader.add_step(static_cast<std::int32_t>(s), passes);
  return passes;
}

/// Collects begins of autograd's nodes and spans of optimizers' steps. An optimizer may run
/// backward inside its step (a closure, as L-BFGS has). Such a step ends no turn, so it is not
/// among `updates_`. An optimizer that wraps another one counts once.
GradientCalls::GradientCalls(const KinetoTrace& t) {
  SpansByThread nodes =
      spans_by_thread(t, [](const NameInfo& n) { return n.kind == NameKind::evaluate; });
  for (const auto& [tid, spans] : nodes)
    for (const Span& node : spans) backward_.push_back(node.start_ns);
  std::ranges::sort(backward_);
  const SpansByThread steps = spans_by_thread(t, [](const NameInfo& n) {
    return n.kind == NameKind::optimizer && n.text.starts_with("Optimizer.step#");
  });
  for (const auto& [tid, spans] : steps) {
    optimizer_.insert(optimizer_.end(), spans.begin(), spans.end());
    const SpanSet backward = union_of(nodes[tid]);
    for (const Span& step : union_of(spans))
      if (clipped(backward, step).empty() && !backward_in(step)) updates_.push_back(step);
  }
  optimizer_ = union_of(std::move(optimizer_));  // one may wrap another
  updates_ = union_of(std::move(updates_));
}

bool GradientCalls::backward_in(Span window) const {
  const auto node = std::lower_bound(backward_.begin(), backward_.end(), window.start_ns);
  return node != backward_.end() && *node <= window.end_ns;
}

int GradientCalls::turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const {
  int turn = 0;
  std::int64_t since = step_began_ns;
  for (auto update =
           std::lower_bound(updates_.begin(), updates_.end(), Span{step_began_ns, INT64_MIN});
       update != updates_.end() && update->end_ns <= called_ns; ++update)
    if (backward_in({since, update->start_ns}) && backward_in({update->end_ns, called_ns}))
      ++turn, since = update->end_ns;
  return turn;
}

bool GradientCalls::may_carry(std::int64_t called_ns) const {
  if (backward_.empty() || optimizer_.empty()) return true;
  const Span* last = last_begun(optimizer_, called_ns);
  if (last == nullptr) return backward_.front() <= called_ns;
  if (called_ns < last->end_ns) return true;  // asked for by the optimizer itself
  return backward_in({last->end_ns, called_ns});
}

}  // namespace linerate::trace
