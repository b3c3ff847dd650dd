// Private: which communications may carry gradients, and what turn of a step they belong to, by
// when the host asked for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "linerate/doc/block.hpp"
#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients exist from a backward pass to the optimizer's step. A communication that is asked for
/// between that step and the next backward pass carries something else. Examples are averaged
/// parameters, a loss, statistics of norm layers.
///
/// Example. Backward runs from 1 to 5 ms, the optimizer from 6 to 7 ms, and backward again from 10
/// ms. A call at 4 or 6.5 ms may carry gradients, a call at 8 ms may not. If both passes are of one
/// step, a call at 11 ms belongs to its turn 1.
class GradientCalls {
 public:
  explicit GradientCalls(const KinetoTrace& trace);

  /// True if the trace has no backward pass or no optimizer.
  bool may_carry(std::int64_t called_ns) const;
  /// The turn of the step that a call belongs to, from 0. A turn ends with an update that has a
  /// backward pass before it and another one between it and the call.
  int turn_of(std::int64_t step_began_ns, std::int64_t called_ns) const;

 private:
  bool backward_in(Span window) const;

  std::vector<std::int64_t> backward_;  // begins of autograd's nodes, ascending
  std::vector<Span> optimizer_;         // steps of it: disjoint, by start
  std::vector<Span> updates_;           // of these, without a backward pass in or around them
};

// Private: the backward passes of one rank, from a trace's own records.

/// Gradients, layers and times of the backward passes that the host ran within each step, by start.
/// Times are as in the trace. A step has several passes if it accumulates: passes over the same
/// gradients with forward operators between them. Otherwise all of it is one pass, also if an
/// update parts it into turns (GradientRecord::turn). Steps without gradients, or without their
/// shapes, have no pass.
std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls);

// Private: what the layers of one backward pass look like, from the shapes of the operators that
// compute their gradients.

/// One use of a weight.
struct WeightUse {
  LayerOperator by = LayerOperator::none;
  TensorShape weight{};  // of a product: ascending; of an embedding: empty until its gradient came
  doc::Block block;
  std::size_t node = 0;
  std::optional<std::size_t> layer{};  // of the gradient that it computed, if that came next
};

/// Collects uses of weights during one backward pass. The caller reports nodes of autograd, and
/// asks about gradients, in the order in which they ran.
class LayerWeights {
 public:
  explicit LayerWeights(const KinetoTrace& trace) : t_(trace) {}

  /// A node ran these operators, of those on its thread.
  void node(std::span<const CpuOp* const> operators, std::int64_t tid);
  /// Whether it is the gradient of the input of a part that is run anew (reentrant checkpointing).
  /// Such an input is a leaf like a parameter. As a rule it has the shape of the part's output.
  bool is_input(const CpuOp& gradient) const;
  /// Whether the last node used a weight of this shape that has no gradient yet. If true, the
  /// caller calls belongs_to() next.
  bool tells_of(const TensorShape& gradient);
  void belongs_to(std::size_t layer);

  /// Kinds and blocks of the layers whose operators tell their factors. Nothing of a layer whose
  /// gradients are others than its block's, nor of an embedding that a projection shares.
  void describe(std::vector<LayerRecord>& layers,
                const std::vector<GradientRecord>& gradients) const;

 private:
  std::vector<std::int64_t> rows_by_layer(std::size_t layers) const;
  bool told_nothing(const WeightUse& use) const { return !use.layer && !told_[use.node]; }

  const KinetoTrace& t_;
  std::vector<WeightUse> uses_;  // as they ran
  std::vector<const CpuOp*> checkpoints_;
  std::vector<bool> told_;  // by node: whether a gradient is that of one of its uses
  std::size_t found_ = 0;   // by tells_of()
};

}  // namespace linerate::trace
