// Watches forward and backward passes and adds what they show to blocks' statistics. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {

using Blocks = std::vector<std::unique_ptr<CurvatureBlock>>;

/// A is computed before the operator that uses a layer's weight, G in a hook of that operator's
/// output: autograd runs it with the gradient of the output as it was then, whatever changes it in
/// place afterwards. If losses come with targets, which may not all count, A waits for them, until
/// the loss is shown or the backward pass begins; the first batch's A waits to find that out. Only
/// with gradients enabled and the module in training mode. Uses within a
/// step add up: of tied modules, of micro-batches. A batch whose gradients are gone (zero_grad)
/// when the next forward pass begins was thrown away, and so is what it added. So is a pass that
/// threw in a layer, unless there are gradients of others.
class Collector {
 public:
  struct Settings {
    Fisher fisher = Fisher::empirical;
    LossAverage average;
    std::uint64_t seed = 0;
  };

  /// `blocks` outlives this object.
  Collector(const Blocks& blocks, const Settings& settings);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  /// Watches until end(). `loss_scale`: what the loss was multiplied by, asked for in backward.
  void begin(std::int64_t step, std::function<double()> loss_scale);
  void end();

  /// The next backward pass is of a loss of this output, or of one with so many terms. `output`:
  /// [N], [N, classes] or [N, classes, positions...].
  void loss_of(const at::Tensor& output);
  /// It has targets, and these of them count. Before loss_of(). Throws UsageError if it is too
  /// late.
  void note_targets(const CountedPositions& counted);
  void set_terms(double terms);

  /// Before a forward pass: which of its batch's labels count (CountedPositions).
  void count_only(const at::Tensor& counted);
  /// The counted positions of the current batch.
  CountedPositions counted() const;

  /// Instead of the training loss's gradients: a backward pass from `output` to the layers for each
  /// column (d term / d output). Parameters and their hooks see nothing of it; the graph stays.
  void backward_from(const at::Tensor& output, const std::vector<at::Tensor>& columns);

  /// Throws what went wrong in a forward pass, where callbacks cannot throw, and UsageError for
  /// layers with a gradient but no observed use, or whose Fisher was not sampled.
  void check() const;

  /// Backward passes since begin(): as many as of the layer that most of them reach.
  int passes() const;

  /// Called after each use of a layer was added (its inputs, or the gradient of its output), on the
  /// thread and in the middle of the pass, with the time that took by the clock. check() rethrows
  /// what it throws.
  using Listener = std::function<void(std::size_t block, FactorSide side, const Span& took)>;
  void set_listener(Listener listener);
  /// Empty: the steady clock, in ns.
  void set_clock(std::function<std::int64_t()> clock);

  /// While it lives passes are not watched.
  class Pause {
   public:
    explicit Pause(Collector& collector);
    ~Pause();

   private:
    Collector& collector_;
  };

  struct State;  // shared with callbacks that are under way

 private:
  std::shared_ptr<State> state_;
};

}  // namespace linerate::torch_adapter
