// A layer that K-FAC preconditions, as it finds it in a model.
// The kinds of losses that K-FAC is told. Thread safety: values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "linerate/plan/make_plan.hpp"

namespace linerate::torch_adapter {

/// What its weights do; conv: of one, two or three dimensions, those of its weight.
enum class LayerKind : std::uint8_t { linear, conv, embedding, norm };

/// A layer's parameters. How it is used (stride, padding, dilation, padding index, epsilon) is read
/// from the operators that use it.
struct LayerSpec {
  std::string name;                    // that reports and errors call it
  LayerKind kind = LayerKind::linear;  // decides what its factors are
  /// linear [out, in], conv [out, in / groups, kd, kh, kw] or without kd or kd and kh, embedding
  /// [words, features], norm [units]
  at::Tensor weight = {};
  at::Tensor bias = {};  // [out], or undefined: none, or one that is not trained
  int groups = 1;        // of a convolution
  /// linear: the weight is [in, out], and inputs are multiplied with it as it is (Conv1D of Hugging
  /// Face's GPT-2).
  bool transposed = false;
  /// Whether the module is in training mode; absent: always.
  std::function<bool()> trains = {};
  /// Why its factors would not be its curvature, for the report; empty if they are.
  std::string refusal = {};
};

// The kinds of losses that K-FAC is told. Thread safety: values.

/// The losses whose Fisher information K-FAC can sample. z is the network's output, and each
/// formula is one term. LossAverage has the number by which the loss divides their sum.
enum class LossKind : std::uint8_t {
  softmax_cross_entropy,  // z [N, classes, positions...], one label a sample and position
  binary_cross_entropy,   // with logits, each element of z a term
  squared_error,          // (z - t)²
  half_squared_error,     // (z - t)² / 2
};

/// Where the classes of an output of three or more dimensions lie.
enum class OutputLayout : std::uint8_t {
  classes_second,  // [N, classes, positions...], as PyTorch's cross_entropy() takes it
  classes_last,    // [N, positions..., classes], as language models give it
};

/// How a loss reads the network's output.
struct LossView {
  /// Targets of this class do not count.
  std::int64_t ignore_index = -100;
  /// Absent: it follows from the target's shape.
  std::optional<OutputLayout> layout = {};
};

// A hyper-parameter: a number, or a function of the step.

/// A number, or one for each step.
/// Thread safety: a value; what a function that was given may do is up to it.
class ScheduledValue {
 public:
  /// From the step's number, counted from 0.
  using OfStep = std::function<double(std::int64_t)>;

  /// The same in every step.
  ScheduledValue(double value) : value_(value) {}
  /// `of_step(step)` in each step.
  template <typename F>
  requires(std::is_invocable_r_v<double, F, std::int64_t>) ScheduledValue(F of_step)
      : value_(OfStep(std::move(of_step))) {}

  /// The number, if it is one.
  std::optional<double> constant() const {
    const double* fixed = std::get_if<double>(&value_);
    return fixed ? std::optional(*fixed) : std::nullopt;
  }
  /// In this step.
  double at(std::int64_t step) const {
    if (const double* fixed = std::get_if<double>(&value_)) return *fixed;
    return std::get<OfStep>(value_)(step);
  }

 private:
  std::variant<double, OfStep> value_;
};

}  // namespace linerate::torch_adapter

// How K-FAC preconditions a model. Formulas: Martens & Grosse 2015 (K-FAC), Grosse & Martens 2016
// (convolutions), Eschenhagen et al. 2023 (shared positions: expand and reduce).
// Thread safety: values.

namespace torch::optim {
class Optimizer;
}

namespace linerate::torch_adapter {

/// The number M by which a loss divides its sum. It has to be undone in gradients of outputs. It is
/// a property of the loss, unknown from layers' shapes. With N samples, R positions and C features
/// of the *network's* output:
struct LossAverage {
  /// The elements over which the loss is a mean.
  enum class Over : std::uint8_t {
    sum,                       // nothing; the curvature is then that of the summed loss
    batch,                     // N
    batch_positions,           // N R
    batch_positions_features,  // N R C: squared error and binary cross entropy with mean reduction
    terms,                     // the number `terms`
  };
  Over over = Over::batch;  // what the loss is a mean over
  double terms = 1;         // of Over::terms

  /// A loss that is divided by `m`.
  static LossAverage of_terms(double m) { return {Over::terms, m}; }
};

/// Whose gradients of outputs G is made of.
enum class Fisher : std::uint8_t {
  empirical,    // the training loss's; costs nothing
  monte_carlo,  // of labels drawn from the model: KFAC::sample_fisher(), one more backward pass
};

/// How damped factors are inverted.
enum class InverseMethod : std::uint8_t {
  cholesky,  // of A + pi gamma I and G + gamma / pi I, gamma = sqrt(damping)
  eigen,     // of G x A + damping I, exactly
};

/// How a layer that is used at several positions of a sample counts them.
enum class SharedPositions : std::uint8_t {
  expand,  // each is a sample of its own
  reduce,  // inputs are averaged and gradients summed over a sample's positions
};

/// How a KFAC preconditions.
struct KfacOptions {
  /// Required: there is no default that would be right for most.
  std::optional<LossAverage> loss_average = {};
  Fisher fisher = Fisher::empirical;               // whose gradients of outputs G is made of
  InverseMethod method = InverseMethod::cholesky;  // of damped factors
  SharedPositions shared_positions = SharedPositions::expand;  // of convolutions and sequences
  /// Steps between factors, and between inverses: a multiple of it. If this or a later option is
  /// absent, a strategy gives it, or else plan::Kfac. If options and strategy both give a value, it
  /// must be the same (docs/kfac.md).
  std::optional<ScheduledValue> factor_interval = {}, inverse_interval = {};
  std::optional<ScheduledValue> damping = {};  // lambda, added to the curvature; above 0
  /// Weight of the old value in the running average of factors, at most: min(1 - 1/k, decay) in
  /// the k-th update.
  std::optional<ScheduledValue> decay = {};
  /// Bound of learning_rate^2 nu^2 <direction, gradient>; 0: no clip.
  std::optional<ScheduledValue> kl_clip = {};
  /// The optimizer that the directions are for, which outlives the preconditioner. The clip takes
  /// its learning rate, and holds for what SGD's momentum makes of directions when that rate rises.
  /// DataParallel::step(preconditioner, optimizer) names it, too.
  torch::optim::Optimizer* optimizer = nullptr;
  /// Its rate, as it is in the step, if it is not the optimizer's of now; the clip needs one of the
  /// two.
  std::function<double(std::int64_t)> learning_rate = {};
  /// The number of backward passes of a step, by which each loss is divided, as in gradient
  /// accumulation. Factors are then those of the joined batch. Absent: as a strategy says, or else
  /// 1. A step with another number of passes is warned of, once.
  std::optional<ScheduledValue> accumulate = {};
  /// A factor with which the loss was multiplied before backward(), such as a scaler's scale.
  ScheduledValue loss_scale = 1;
  /// The factor that .grad still has when directions are found; the clip leaves it out. It is a
  /// scaler's scale if a DataParallel shares the steps, since gradients are divided by it only
  /// afterwards.
  ScheduledValue gradient_scale = 1;
  /// Factors of a convolution look at one of `conv_subsampling` squared bands of the output's rows.
  /// The bands differ by sample and are drawn anew in each step. They are weighted so that their
  /// expectation is the whole factor (conv_products.hpp). 1: all rows.
  int conv_subsampling = 1;
  /// Seeds Monte-Carlo labels and subsampled positions.
  std::uint64_t seed = 0;
  /// Layers left to the first-order optimizer: patterns with *, ? or [...], "encoder.*.attention".
  std::vector<std::string> skip = {};
  /// Whether these kinds of layers are preconditioned.
  bool norms = true, embeddings = true;
  /// Neither is a layer with a larger factor preconditioned (projections to a vocabulary).
  std::int64_t largest_factor = plan::kLargestFactor;
  /// Throws UsageError for a layer that would be left to the first-order optimizer and that `skip`
  /// does not name.
  bool all_layers = false;
  /// This many failures in a row of one factor end the training with an error.
  int max_failures = 3;
  /// Keeps the factors that the inverses in use were computed from. Then a run that is resumed
  /// between two updates of inverses goes on as the uninterrupted one would.
  bool exact_resume = true;
};

/// With values for all that is absent.
[[nodiscard]] KfacOptions with_defaults(KfacOptions options);

}  // namespace linerate::torch_adapter
