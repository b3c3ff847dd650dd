// The parts of a K-FAC step, for one rank: who calls them in which order decides. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linerate/torch_adapter/kfac/collector.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"

namespace linerate::torch_adapter {

/// A step on one rank is
///
///     begin_step();                                     // before the forward pass
///     ... forward, backward: the collector fills the blocks' statistics ...
///     check(); fold_batch(i, side), all blocks;         // if factors_due()
///     update_inverse(i, side), all blocks;              // if inverses_due()
///     direction(i), all blocks -> q -> clip -> write(i)
///     end_step();
///
/// Between ranks, a packed factor is summed on its way from CurvatureBlock::batch_factor() to
/// fold(), and an inverse or a direction computed elsewhere goes to set_packed_inverse() or
/// write().
class Preconditioner {
 public:
  /// Throws UsageError for options that contradict each other.
  Preconditioner(const std::vector<LayerSpec>& layers, KfacOptions options);

  const KfacOptions& options() const { return options_; }
  const Blocks& blocks() const { return blocks_; }
  Collector& collector() { return collector_; }
  std::int64_t step() const { return step_; }

  void begin_step();
  bool factors_due() const;
  bool inverses_due() const;
  /// Which factors and inverses a step brings up to date, in place of the options' intervals.
  struct Due {
    bool factors = true, inverses = true;
  };
  void follow(std::function<Due(std::int64_t step)> schedule);
  double damping() const;
  /// What the Levenberg-Marquardt rule says instead of the options.
  void set_damping(std::optional<double> damping) { damping_ = damping; }

  /// False where the layer was not used in this batch.
  bool fold_batch(std::size_t block);
  /// A packed factor, averaged over ranks, into the running average. One that is not finite is
  /// dropped and counted.
  void fold(std::size_t block, FactorSide side, const at::Tensor& packed);
  /// One that fails keeps the old inverse, and is counted. After max_failures in a row: Error.
  /// Whether there is a new one.
  bool update_inverse(std::size_t block, FactorSide side);
  /// Of an inverse that another rank computed.
  void note_inverse(std::size_t block, FactorSide side, bool succeeded);

  /// Whether the block has inverses and its weight a gradient.
  bool can_precondition(std::size_t block) const;
  struct Direction {
    at::Tensor direction;
    double product = 0;  // <direction, gradient>
  };
  Direction direction(std::size_t block) const;
  /// nu of the sum of all products; nothing: the step is to be skipped.
  std::optional<double> clip(double q) const;

  void end_step(KfacStep& report);

  KfacState save() const;
  void load(const KfacState& state);
  KfacMemory memory() const;

 private:
  void count_failure(std::size_t block, FactorSide side, int in_a_row, const char* what);

  const KfacOptions options_;
  Blocks blocks_;
  Collector collector_;
  std::int64_t step_ = 0;
  std::optional<double> damping_;
  std::function<Due(std::int64_t)> schedule_;
  std::vector<std::string> failures_;  // of this step
  std::int64_t all_failures_ = 0;
};

/// sum x y in f64.
double inner_product(const at::Tensor& x, const at::Tensor& y);

}  // namespace linerate::torch_adapter
