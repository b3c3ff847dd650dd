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
#include "linerate/trace/kineto/backward.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/trace/kineto/device_clock.hpp"
#include "linerate/trace/kineto/layer_weights.hpp"

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

using Ops = std::vector<const CpuOp*>;

void sort_by_start(Ops& ops) {
  std::stable_sort(ops.begin(), ops.end(), [](const CpuOp* a, const CpuOp* b) {
    return a->span.start_ns < b->span.start_ns;
  });
}

/// Those of `ops`, which are sorted, that began within `window`.
std::span<const CpuOp* const> within(const Ops& ops, Span window) {
  const auto at = [&ops](std::int64_t time) {
    return std::lower_bound(ops.begin(), ops.end(), time,
                            [](const CpuOp* op, std::int64_t t) { return op->span.start_ns < t; });
  };
  return {at(window.start_ns), at(window.end_ns)};
}

/// Reads the passes of a trace step by step. The constructor sorts the nodes and operators of the
/// whole trace once, so a step finds its own by binary search.
class BackwardReader {
 public:
  BackwardReader(const KinetoTrace& t, const GradientCalls& calls)
      : t_(t), calls_(calls), clock_(t, LaunchTimes(t), {INT64_MIN, INT64_MAX}) {
    for (const CpuOp& op : t.ops) {
      if (is_gradient(op) || is_node(op)) nodes_.push_back(&op);
      if (t.names[op.name].layer != LayerOperator::none) operators_.push_back(&op);
    }
    sort_by_start(nodes_);
    sort_by_start(operators_);
  }

  void add_step(std::int32_t step, std::vector<BackwardPass>& passes) {
    const Span window = t_.steps[to_index(step)].span;
    const std::span<const CpuOp* const> nodes = within(nodes_, window);
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
  std::vector<Ops> in_turns(Span step, std::span<const CpuOp* const> nodes) const {
    std::vector<Ops> turns(1);
    for (const CpuOp* op : nodes) {
      const auto turn = to_index(calls_.turn_of(step.start_ns, op->span.start_ns));
      if (turn >= turns.size()) turns.resize(turn + 1);
      turns[turn].push_back(op);
    }
    const bool all = std::all_of(turns.begin(), turns.end(), [this](const Ops& ops) {
      return std::any_of(ops.begin(), ops.end(),
                         [this](const CpuOp* op) { return is_gradient(*op); });
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

  bool is_gradient(const CpuOp& op) const {
    return t_.names[op.name].kind == NameKind::accumulate_grad;
  }
  bool is_node(const CpuOp& op) const { return t_.names[op.name].kind == NameKind::evaluate; }

  bool all_gradients_have_sizes(std::span<const CpuOp* const> nodes) const {
    return std::none_of(nodes.begin(), nodes.end(), [this](const CpuOp* op) {
      return is_gradient(*op) && (op->shapes < 0 || elements_of(shape_of(*op)) < 0);
    });
  }
  const TensorShape& shape_of(const CpuOp& gradient) const {
    return t_.shapes[to_index(gradient.shapes)].front();
  }

  std::vector<Ops> passes_in(std::span<const CpuOp* const> nodes) {
    if (sizes_repeat(nodes)) {
      std::vector<Ops> parts = parts_of(nodes);
      if (same_gradients(parts)) return parts;
    }
    return {Ops(nodes.begin(), nodes.end())};
  }

  /// Whether these nodes may be several passes over the same gradients: then the counts of all
  /// sizes have a common divisor above 1. It is a cheap test that spares most steps the cut into
  /// parts.
  bool sizes_repeat(std::span<const CpuOp* const> nodes) const {
    std::map<std::int64_t, std::int64_t> times;
    for (const CpuOp* op : nodes)
      if (is_gradient(*op)) ++times[elements_of(shape_of(*op))];
    std::int64_t common = 0;
    for (const auto& [elements, n] : times) common = std::gcd(common, n);
    return common > 1;
  }

  /// Operators of the thread that marks the steps, outside of autograd.
  const Ops& forward() {
    if (!forward_.empty()) return forward_;
    std::vector<Span> engine;
    for (const CpuOp* op : nodes_)
      if (op->tid == t_.step_thread) engine.push_back(op->span);
    const SpanSet busy = union_of(std::move(engine));
    for (const CpuOp& op : t_.ops)
      if (op.tid == t_.step_thread && t_.names[op.name].kind == NameKind::plain &&
          clipped(busy, {op.span.start_ns, op.span.start_ns + 1}).empty())
        forward_.push_back(&op);
    sort_by_start(forward_);
    return forward_;
  }

  /// Cuts nodes at operators outside of autograd on the thread that marks the steps: there a
  /// forward pass ran again. A part without gradients is no pass, so it goes on after the cut. If
  /// it is the last one, it is dropped.
  std::vector<Ops> parts_of(std::span<const CpuOp* const> nodes) {
    std::vector<Ops> parts;
    bool has_gradients = true;  // of the last part
    std::int64_t after = INT64_MIN;
    for (const CpuOp* op : nodes) {
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
      for (const CpuOp* op : part)
        if (is_gradient(*op)) all.push_back(elements_of(shape_of(*op)));
      std::sort(all.begin(), all.end());
      return all;
    };
    const std::vector<std::int64_t> first = sizes(parts.front());
    return std::all_of(parts.begin(), parts.end(),
                       [&](const Ops& part) { return sizes(part) == first; });
  }

  /// Those that the node ran itself, not within the next one.
  std::span<const CpuOp* const> operators_of(const Ops& nodes, std::size_t i) const {
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
      const CpuOp* op = nodes[i];
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
  const bool any = std::any_of(trace.ops.begin(), trace.ops.end(), [&](const CpuOp& op) {
    return trace.names[op.name].kind == NameKind::accumulate_grad;
  });
  if (!any || trace.steps.empty()) return passes;
  BackwardReader reader(trace, calls);
  for (std::size_t s = 0; s < trace.steps.size(); ++s)
    reader.add_step(static_cast<std::int32_t>(s), passes);
  return passes;
}

}  // namespace linerate::trace
