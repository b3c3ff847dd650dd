// The update of a step with Levenberg-Marquardt damping. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/torch_adapter/kfac/collector.hpp"
#include "linerate/torch_adapter/kfac/quadratic_model.hpp"

namespace linerate::torch_adapter {

/// alpha direction + mu last update, of the least of the quadratic model. On several ranks all have
/// the same gradients and directions, and each the curvature of its own batch, in between of
///
///     set_loss(output, loss);          // between forward and backward
///     model = this->model(directions); // .grads are gradients, and stay
///     ... model.curvature is averaged over ranks ...
///     minimise(model);
///     write();                         // .grad = -update
///
/// Where values are not read (decide_there()), damping, minimum, and whether a step moved anything
/// are tensors: enqueue_minimise(), enqueue_write(), enqueue_observe().
class LmUpdate {
 public:
  /// All arguments outlive this object.
  LmUpdate(const Blocks& blocks, Collector& collector, const LossAverage& average,
           const LevenbergMarquardtOptions& options);

  /// Of what is decided on a device it waits for that.
  double damping() const;

  /// Of the last `passes` calls: a step's loss is the mean of those of so many passes.
  void set_loss(const at::Tensor& output, LossKind loss, double passes);
  bool has_loss() const { return !losses_.empty(); }
  void forget_loss() { losses_.clear(); }
  /// A step without an update.
  void note_skipped() { awaits_change_ = false; }

  /// directions[b] of block b, undefined if it has none: its gradient replaces it. Without a loss
  /// the curvature is 0. A parameter without a gradient has no part in the last update; where
  /// values are not read, one whose gradient is 0 throughout, since a parameter that no rank used
  /// has that.
  QuadraticModel model(const std::vector<at::Tensor>& directions);
  void minimise(const QuadraticModel& model);
  void write();

  /// Whether values are not read from now on; what was decided so far holds on the other side.
  void decide_there(bool yes);
  /// f64, of no dimensions, where the parameters lie.
  const at::Tensor& damping_there() const { return there_->damping; }
  void enqueue_minimise(const QuadraticModel& model);
  /// write() if `moves` (bool, of no dimensions); else every .grad is 0, and the last update is
  /// still that of the step before.
  void enqueue_write(const at::Tensor& moves);
  /// observe() if `counts` (bool), and if the last step moved anything.
  void enqueue_observe(const at::Tensor& change, const at::Tensor& counts);

  /// Whether the change by the last step's update is still to be given; false after a skipped step
  /// or a checkpoint.
  bool awaits_change() const { return awaits_change_; }
  /// The loss's change by the last update, over all ranks: f64, of no dimensions.
  void observe(const at::Tensor& change);
  /// Waits as damping() does.
  double damping_after(const at::Tensor& change) const;
  /// The same for this rank's batch, until all ranks' are known.
  void note_change(at::Tensor change);
  const std::optional<at::Tensor>& change() const { return change_; }
  std::optional<at::Tensor> take_change() { return std::exchange(change_, std::nullopt); }

  const std::vector<at::Tensor>& last_update() const { return last_update_; }
  /// Throws InputError for the update of another model.
  void load(double damping, const std::vector<at::Tensor>& update);

 private:
  /// Of no dimensions: what damping_ and predicted_ are on the host, whether the last step moved
  /// anything, and what update_ is predicted to change if it is written.
  struct There {
    at::Tensor damping, predicted, moved, change;  // bool the third, f64
  };
  // Of the actual to the predicted change.
  static constexpr double kTooFar = 0.25, kTooCautious = 0.75, kHopeless = -100;

  at::Tensor enqueued_damping_after(const at::Tensor& change) const;
  at::Tensor part_in_momentum(const at::Tensor& parameter, const at::Tensor& gradient,
                              const at::Tensor& last) const;
  /// The tensors of a layer that a direction has parts for.
  std::vector<at::Tensor> parameters() const;

  const Blocks& blocks_;
  Collector& collector_;
  const LossAverage average_;
  const LevenbergMarquardtOptions options_;
  double damping_;
  std::optional<There> there_;     // in place of damping_ and predicted_
  std::vector<ShownLoss> losses_;  // of the step's passes
  double passes_ = 1;              // what their sum is divided by
  std::optional<at::Tensor> change_;
  // By parameters(); empty: none yet. momentum_: the last update of those that have a gradient now.
  std::vector<at::Tensor> direction_, update_, last_update_, momentum_;
  double predicted_ = 0;
  bool awaits_change_ = false;
};

/// Losses of one step that some ranks gave and others did not.
std::string judges_in_words(std::int64_t step, double judges, int ranks);

}  // namespace linerate::torch_adapter
