// The parts of a K-FAC step; CurvatureStep decides their order. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/kfac/collector.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"
#include "linerate/torch_adapter/kfac/late_findings.hpp"

namespace linerate::torch_adapter {

/// begin_step() comes before the forward pass; then the collector fills the blocks' statistics.
/// Between ranks, their sums and counts are added up on their way from CurvatureBlock::pack_batch()
/// to fold_sums().
class Preconditioner {
 public:
  /// Throws UsageError for options that contradict each other.
  Preconditioner(const std::vector<LayerSpec>& layers, KfacOptions options);

  const KfacOptions& options() const { return options_; }
  /// What the caller filled in, and the rest from a strategy. Throws UsageError.
  const KfacOptions& said() const { return said_; }
  void adopt(const plan::Kfac& kfac);
  /// Back to the caller's.
  void forget_strategy() { options_ = with_defaults(said_); }
  const Blocks& blocks() const { return blocks_; }
  Collector& collector() { return collector_; }
  std::int64_t step() const { return step_; }

  /// KfacOptions::optimizer from now on.
  void set_optimizer(torch::optim::Optimizer& optimizer) { optimizer_ = &optimizer; }

  /// Whether what happens in a step is enqueued alone: no value is read, what would be decided by
  /// values is decided by tensors, and what failed is heard later. So it is where weights lie on a
  /// device.
  bool enqueues() const { return enqueues_; }
  void set_enqueues(bool yes);

  void begin_step();
  bool factors_due() const;
  bool inverses_due() const;
  /// Whether a step updates factors and inverses, in place of the options' intervals.
  struct Due {
    bool factors = true, inverses = true;
  };
  void follow(std::function<Due(std::int64_t step)> schedule);
  double damping() const { return options_.damping->at(step_); }
  /// Backward passes of a step whose losses are divided by so many; 1 unless it is said.
  double accumulated() const { return options_.accumulate ? options_.accumulate->at(step_) : 1; }
  /// Warns, once, if passes of this step would make other factors than those of their losses.
  void warn_of_passes();

  /// Sums of a layer's factors and their counts, of one rank or of all, by side: divided, they go
  /// into the running averages, which stay if nobody used the layer in both of its passes. A side
  /// that has no factor may be undefined.
  void fold_sums(std::size_t block, const std::array<at::Tensor, 2>& packed);
  /// Those of this rank's batch.
  void fold_batch(std::size_t block);
  /// A packed factor into the running average. One that is not finite is dropped and counted.
  void fold(std::size_t block, FactorSide side, const at::Tensor& packed);
  /// A failure keeps the old inverse and is counted; after max_failures in a row: Error. Returns
  /// whether there is a new one.
  bool update_inverse(std::size_t block, FactorSide side);
  /// What another rank has computed from the same averages; undefined: it failed there, which is
  /// counted. That rank throws.
  void take_inverse(std::size_t block, FactorSide side, const at::Tensor& packed);

  /// The same where values are not read: whether there is a new one, bool, undefined of a side that
  /// has no factor; and of another rank's, if `there` (bool).
  at::Tensor enqueue_inverse(std::size_t block, FactorSide side);
  /// In one call of the solver (CurvatureBlock::enqueue_inverses), of factors of a Plan.
  void enqueue_inverses(std::span<const std::int32_t> factors);
  void enqueue_taken_inverse(std::size_t block, FactorSide side, const at::Tensor& packed,
                             const at::Tensor& there);

  /// Whether the block has inverses and its weight a gradient.
  bool can_precondition(std::size_t block) const;
  struct Direction {
    at::Tensor direction;
    double product = 0;  // <direction, gradient>
    /// Where values are not read: that product, f64, or plain_product() if there are no inverses,
    /// which makes the direction of no use; bool.
    at::Tensor product_there = {}, exists = {};
  };
  Direction direction(std::size_t block) const { return direction(block, damping()); }
  Direction direction(std::size_t block, double damping) const;
  Direction enqueue_direction(std::size_t block) const {
    return enqueue_direction(block, damping_there());
  }
  Direction enqueue_direction(std::size_t block, const at::Tensor& damping) const;
  /// Of this step: f64, of no dimensions, where the weights are.
  at::Tensor damping_there() const;
  /// Of what an owner has computed, of the gradient's shape.
  Direction enqueue_product(std::size_t block, const at::Tensor& direction,
                            const at::Tensor& exists) const;
  /// What a block without a direction adds to that sum: nothing, or NaN if its gradient, which
  /// stays as it is, is not finite.
  double plain_product(std::size_t block) const;
  /// nu of the sum of all products; nothing: the step is to be skipped.
  std::optional<double> clip(double q) const;
  /// The same of q and nu as f64 of no dimensions; nu = 0: no gradient counts.
  at::Tensor enqueue_clip(const at::Tensor& q) const;
  /// What this step has found out is on its way to the host.
  void send_findings(const at::Tensor& q, const at::Tensor& nu);
  /// Takes what has come of this step and those before: into `report`, failures by the words of
  /// take_failures(). What has failed too often is in take_late_failure().
  void hear_findings(KfacStep& report);
  std::exception_ptr take_late_failure() { return std::exchange(late_failure_, nullptr); }

  void end_step(KfacStep& report);
  /// The gradients were not finite: averages and inverses are those of the step before, and the
  /// next batch takes this one's place. What failed is counted.
  void skip_step(KfacStep& report);
  /// The batch that is being collected does not count; the next one replaces it.
  void discard_batch();
  /// Averages and inverses become what they were when the step began; undo() also resets counters.
  void undo();
  void undo_but_count();
  /// What the step has done stays.
  void keep() { before_.clear(); }

  KfacState save() const;
  /// What this rank is to hold of a block.
  enum class Holds : std::uint8_t { nothing, averages, inverses };
  using HoldsOfBlock = std::function<Holds(std::size_t block)>;
  void load(const KfacState& state, const HoldsOfBlock& holds);
  /// Averages and inverses alone; a batch that is being collected stays.
  void load_blocks(const KfacState& state, const HoldsOfBlock& holds);
  KfacMemory memory() const;

 private:
  bool is_on_cpu() const;
  void enqueue_fold(std::size_t block, const std::array<at::Tensor, 2>& packed);
  template <typename Throwing>
  void keep_late_failure(Throwing&& throwing);
  std::string failure_in_words(std::size_t block, FactorSide side, const char* what) const;
  struct InARow {
    int failures = 0;
    double damping = 0;  // of the last one
  };
  [[noreturn]] void throw_failed_too_often(std::size_t block, FactorSide side,
                                           const std::string& what, const InARow& row) const;
  void remember(std::size_t block, FactorSide side);
  void note_inverse(std::size_t block, FactorSide side, bool succeeded);
  void note_failure(std::size_t block, FactorSide side, const char* what);
  /// In the order of the factors, whichever order a Plan has them in.
  void take_failures(KfacStep& report);
  /// The optimizer's in this step.
  double rate() const;
  void bound_update();
  void require_below_limit(std::size_t block, FactorSide side, int in_a_row) const;

  const KfacOptions said_;  // what the caller filled in
  KfacOptions options_;     // with values for the rest
  Blocks blocks_;
  Collector collector_;
  std::int64_t step_ = 0;
  torch::optim::Optimizer* optimizer_ = nullptr;
  double last_rate_ = 0;  // of the last step that counted
  bool warned_unbound_ = false, warned_passes_ = false;
  bool enqueues_ = false;
  LateFindings findings_;
  std::exception_ptr late_failure_;
  std::function<Due(std::int64_t)> schedule_;
  using Factor = std::pair<std::size_t, FactorSide>;
  std::multimap<Factor, std::string> failures_;         // of this step
  std::map<Factor, CurvatureBlock::Curvature> before_;  // this step
};

/// sum x y in f64.
at::Tensor enqueued_inner_product(const at::Tensor& x, const at::Tensor& y);
double inner_product(const at::Tensor& x, const at::Tensor& y);

}  // namespace linerate::torch_adapter
