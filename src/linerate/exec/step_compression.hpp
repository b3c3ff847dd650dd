// What a driver of training steps asks of the compressors of a Plan, wherever they compute.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/compression_state.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"

namespace linerate::exec {

/// The encode and decode operations of training Plans that compress. What a step leaves (residuals,
/// warm-started factors) counts once it is accepted: keep() or drop() ends each step. Decodes of a
/// step that counts may follow.
///
/// Buckets hold gradients in their own units (not divided by the ranks); decode writes the mean
/// over the ranks. Residuals belong to parameters, by name: another cut into buckets moves nothing.
///
/// What is kept is in units of the loss, whatever a scaler multiplies it by. Buckets that are
/// encoded hold gradients divided by that scale; decode multiplies the means by it again.
class StepCompression : public Operation {
 public:
  /// Codecs and residuals are kept if name, shape and compressor stay. Nothing is under way.
  virtual void set_plan(std::shared_ptr<const doc::Plan> plan) = 0;
  /// The phase of the next step, by the number of steps that counted; its variant's name has it
  /// after a dot. Empty if all steps are alike.
  virtual std::string phase() const = 0;
  /// Before the tasks of a step, when nothing of the one before is under way. Random numbers are
  /// drawn from the number of steps that counted.
  virtual void begin_step() = 0;
  /// After begin_step(), of the variant that the step runs: what it sends dense takes along what is
  /// owed to it, until keep() or drop(). Nothing is owed any more then, if the step counts.
  /// `shapes`: by position in the Plan.
  virtual void begin_dense(const doc::TaskGraph& graph,
                           std::span<const compress::Shape> shapes) = 0;
  /// What the loss of the step's gradients was multiplied by; absent: no scaler watches them.
  /// Before the first task of a step; it stays until it is set again.
  void set_loss_scale(std::optional<double> scale) {
    loss_scale_ = scale ? std::optional(static_cast<float>(*scale)) : std::nullopt;
  }
  std::optional<float> loss_scale() const { return loss_scale_; }
  /// Whether the Plan's compressor makes of means that travel dense what the optimizer gets
  /// (Compressor::of_dense): then all of them are shown to it, once in a step.
  virtual bool sees_dense_means() const = 0;
  /// The step counts on every rank, except for the parameters of these names: nobody takes their
  /// means, as no rank used them, so what is owed to them stays owed.
  virtual void keep(std::set<std::string> unused = {}) = 0;
  /// The step counts on no rank: codecs are as they were before.
  virtual void drop() = 0;

  /// Between steps. load() replaces what there is: parameters that it does not name, and codecs of
  /// another compressor, begin anew; residuals stay.
  virtual compress::CompressionState save() const = 0;
  virtual void load(compress::CompressionState state) = 0;

 private:
  std::optional<float> loss_scale_;
};

}  // namespace linerate::exec
