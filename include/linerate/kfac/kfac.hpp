// K-FAC for LibTorch: a preconditioner for use with any optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/kfac_report.hpp"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace linerate::torch_adapter {

struct KfacState;  // kfac_report.hpp
struct LayerSpec;  // kfac_options.hpp

/// Kronecker-factored approximate curvature (Martens & Grosse 2015) of a model's layers:
///
///     KFAC pre(model, {.loss_average = LossAverage{}, .learning_rate = [&](auto) { return lr; }});
///     ...
///     optimizer.zero_grad();
///     loss.backward();
///     pre.step();        // .grad becomes the natural gradient
///     optimizer.step();
///
/// It watches forward and backward passes of the model's modules in training mode from its
/// construction on. What it does not know is left to the optimizer, and named in
/// registration_report().
/// Thread safety: one thread at a time. Passes that it watches may use others: what they add is
/// added under a lock.
class KFAC {
 public:
  /// `model` outlives this object. Throws UsageError.
  KFAC(torch::nn::Module& model, KfacOptions options);
  /// For a model whose layers are no torch::nn modules; `parameters` are all it trains.
  KFAC(const std::vector<LayerSpec>& layers, const std::vector<at::Tensor>& parameters,
       KfacOptions options);
  ~KFAC();
  KFAC(const KFAC&) = delete;
  KFAC& operator=(const KFAC&) = delete;

  /// Every layer with parameters: what its factors look like, or why it is left to the optimizer.
  const std::vector<RegisteredLayer>& registration_report() const;

  /// Between a forward and its backward pass: what the loss is computed from. Needed if it is
  /// averaged over positions, or if dimension 0 of the first layer's input is not the samples.
  /// `output`: [N], [N, classes], or of more dimensions in the layout that `view` or the target
  /// names. Throws UsageError if neither does.
  void loss_of(const at::Tensor& output, const LossView& view = {});
  /// `target`: classes, [N] or [N, positions...], or these as one dimension; or values of the
  /// output's shape, which say nothing of its layout. Classes that are view.ignore_index do not
  /// count, as in count_only(). Give a target in every batch, or in none. Throws UsageError for
  /// another shape, and if both layouts fit and `view` names none.
  void loss_of(const at::Tensor& output, const at::Tensor& target, const LossView& view = {});
  /// The number of the loss's terms instead of an output to take it from.
  void set_loss_terms(double terms);

  /// Before a forward pass, if some labels do not count (cross entropy's ignore_index): bool [N] or
  /// [N, positions...], targets != ignore_index. M is their number then. Layers that treat
  /// positions apart, up to the loss's own layer, look at these positions alone. On several ranks
  /// call DataParallel::set_batch() with their number, not the samples'. Holds for one batch.
  /// Throws UsageError.
  void count_only(const at::Tensor& counted);

  /// fisher = monte_carlo, between a forward and its backward pass: a backward pass with labels
  /// drawn from the model. Nothing in steps without factors. `first_sample`: this rank's first
  /// among those of all.
  void sample_fisher(const at::Tensor& output, LossKind loss, std::int64_t first_sample = 0);
  /// With labels drawn by the caller.
  void sample_fisher(const at::Tensor& output, LossKind loss, const at::Tensor& labels);

  /// Updates factors and inverses if they are due, and writes the directions into .grad.
  KfacStep step();

  /// While it lives passes are not watched: for passes without a step.
  /// Thread safety: as its owner.
  class Pause {
   public:
    /// `owner` outlives the guard.
    explicit Pause(KFAC& owner);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    KFAC& owner_;
  };

  /// This rank's averages and step, for a checkpoint; on several ranks
  /// DataParallel::curvature_state().
  [[nodiscard]] KfacState save() const;
  /// Throws InputError for the state of another model.
  void load(const KfacState& state);

  /// The bytes that it holds on this rank.
  KfacMemory memory_usage() const;

 private:
  friend struct KfacInside;  // for the rest of torch_adapter
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linerate::torch_adapter
