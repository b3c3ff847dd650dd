// Private: what the layers of one backward pass look like, from the shapes of the operators that
// compute their gradients.
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
