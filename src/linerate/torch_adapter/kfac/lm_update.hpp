// The update of a step with Levenberg-Marquardt damping. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
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
class LmUpdate {
 public:
  /// All arguments outlive this object.
  LmUpdate(const Blocks& blocks, Collector& collector, const LossAverage& average,
           const LevenbergMarquardtOptions& options);

  double damping() const { return damping_; }

  void set_loss(const at::Tensor& output, LossKind loss) { loss_ = {output, loss}; }
  bool has_loss() const { return loss_.has_value(); }
  void forget_loss() { loss_.reset(); }
  /// A step without an update.
  void note_skipped() { awaits_change_ = false; }

  /// directions[b] of block b, undefined if it has none: its gradient replaces it. Without a loss
  /// the curvature is 0.
  QuadraticModel model(const std::vector<at::Tensor>& directions);
  void minimise(const QuadraticModel& model);
  void write();

  /// Whether the change by the last step's update is still to be given; false after a skipped step
  /// or a checkpoint.
  bool awaits_change() const { return awaits_change_; }
  /// The loss's change by the last update, over all ranks.
  void observe(double change);
  double damping_after(double change) const;
  /// The same for this rank's batch, until all ranks' are known.
  void note_change(double change);
  const std::optional<double>& change() const { return change_; }
  std::optional<double> take_change() { return std::exchange(change_, std::nullopt); }

  const std::vector<at::Tensor>& last_update() const { return last_update_; }
  void load(double damping, std::vector<at::Tensor> update);

 private:
  /// The tensors of a layer that a direction has parts for.
  std::vector<at::Tensor> parameters() const;

  const Blocks& blocks_;
  Collector& collector_;
  const LossAverage average_;
  const LevenbergMarquardtOptions options_;
  double damping_;
  std::optional<std::pair<at::Tensor, LossKind>> loss_;
  std::optional<double> change_;
  // By parameters(); empty: none yet. momentum_: the last update of those that have a gradient now.
  std::vector<at::Tensor> direction_, update_, last_update_, momentum_;
  double predicted_ = 0;
  bool awaits_change_ = false;
};

}  // namespace linerate::torch_adapter
