// Watches forward and backward passes and adds what they show to blocks' statistics. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/kfac/counted_positions.hpp"
#include "linerate/kfac/curvature_block.hpp"

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

  /// `told` is called after each use of a layer was added (its inputs, or the gradient of its
  /// output). It runs on the thread of the pass and in the middle of it, with the time that the
  /// adding took by the clock. check() rethrows what it throws.
  struct Listener {
    std::function<void(std::size_t block, FactorSide side, const Span& took)> told;
    std::function<std::int64_t()> clock;  // in ns
  };
  void set_listener(Listener listener);

  /// Whether passes are not watched.
  void pause(bool yes);

  struct State;  // shared with callbacks that are under way

 private:
  std::shared_ptr<State> state_;
};

}  // namespace linerate::torch_adapter

// How far a step may go. Private to kfac and torch_adapter.

namespace torch::optim {
class Optimizer;
}

namespace linerate::torch_adapter {

/// The factor nu = min(1, sqrt(kappa / (lr² |q|))) for all directions, with q = <direction,
/// gradient> over all preconditioned layers. The step's KL divergence, about lr² nu² q / 2, then
/// stays below kappa / 2 (Ba et al. 2017). For example with lr = 0.1, kappa = 0.001 and q = 10, lr²
/// q is 0.1, so nu is sqrt(0.01) = 0.1.
///
/// nu is 1 for q = 0 and for kappa = 0. It is 0 if q is not finite, and then no gradient counts. q
/// and the result: scalar f64 tensors.
at::Tensor kl_clip_factor(const at::Tensor& q, double learning_rate, double kappa);

/// The largest of its parameter groups.
double rate_of(const torch::optim::Optimizer& optimizer);

/// Scales SGD's momentum back if the learning rate has risen from `before` to `now`.
///
/// A direction is clipped for the rate of its step, so while the clip holds, its length goes as one
/// over that rate. SGD multiplies its momentum by the present rate. After a rise, old directions
/// are too long by as much as the rate has grown. Multiplying the momentum by before / now makes
/// each old direction the update that it was. Then |update| <= sqrt(kappa) / (1 - momentum) in the
/// metric of the clip, under any schedule. A falling rate shortens old directions by itself.
///
/// For example the rate rises from 0.01 to 0.1. A direction in the momentum was clipped to an
/// update of 1 at rate 0.01; at 0.1 it would be an update of 10. The momentum is multiplied by 0.1,
/// so it stays 1.
///
/// Changes the blocks' parameters alone. Optimizers other than SGD stay as they are.
void bound_momentum(torch::optim::Optimizer& optimizer, const Blocks& blocks, double before,
                    double now);

}  // namespace linerate::torch_adapter
