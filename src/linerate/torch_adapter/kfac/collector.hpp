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

/// Adds the statistics of passes to blocks.
///
/// K-FAC needs two things of each layer: A, the second moment of its inputs, and G, that of the
/// gradients of its outputs. A is computed before the operator that uses the layer's weight. G is
/// computed in a hook of that operator's output. Autograd runs the hook with the gradient of the
/// output as it was then, whatever changes it in place afterwards. A pass is watched only with
/// gradients enabled and the module in training mode.
///
/// Losses may come with targets, and some targets may not count. Then A waits for the targets,
/// until the loss is shown (loss_of) or the backward pass begins. The first batch's A waits too,
/// because it is not known yet whether targets come.
///
/// Uses within a step add up: of tied modules, of micro-batches. For example a step has two
/// micro-batches. Forward 1 adds A, and backward 1 adds G. Forward 2 begins a new batch and adds A,
/// and backward 2 adds G. The step's factors are made of both.
///
/// A batch is thrown away in two cases. Its gradients are gone (zero_grad) when the next forward
/// pass begins. Or its forward pass threw in a layer, unless there are gradients of other batches.
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

  /// The next backward pass is that of a loss of this output (loss_of), or of a loss with so many
  /// terms (set_terms). `output`: [N], [N, classes] or [N, classes, positions...].
  void loss_of(const at::Tensor& output);
  /// The loss has targets, and these of them count. Before loss_of(). Throws UsageError if it is
  /// too late.
  void note_targets(const CountedPositions& counted);
  void set_terms(double terms);

  /// Before a forward pass: which of its batch's labels count (CountedPositions).
  void count_only(const at::Tensor& counted);
  /// The counted positions of the current batch.
  CountedPositions counted() const;

  /// Instead of the training loss's gradients: a backward pass from `output` to the layers for each
  /// column (d term / d output). Parameters and their hooks see nothing of it; the graph stays.
  void backward_from(const at::Tensor& output, const std::vector<at::Tensor>& columns);

  /// Throws what went wrong in a forward pass, since callbacks cannot throw. Throws UsageError for
  /// layers with a gradient but no observed use, and for layers whose Fisher was not sampled.
  void check() const;

  /// The number of backward passes since begin(): that of the layer which most of them reach.
  int passes() const;

  /// Called after each use of a layer was added (its inputs, or the gradient of its output). It
  /// runs on the thread of the pass and in the middle of it, with the time that the adding took by
  /// the clock. check() rethrows what it throws.
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
