// The interface through which a driver of training steps uses a Plan's compressors, wherever they
// compute.
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

/// The encode and decode operations of training Plans that compress. A step leaves something in its
/// codecs: residuals, warm-started factors. That counts once the step is accepted, so keep() or
/// drop() ends each step. Decodes of a step that counts may follow keep().
///
/// Buckets hold gradients in their own units (not divided by the ranks); decode writes the mean
/// over the ranks. Residuals belong to parameters, by name, so another cut into buckets loses none
/// of them.
///
/// Residuals and factors are in units of the loss, whatever a scaler multiplies the loss by.
/// Buckets that are encoded hold gradients divided by that scale; decode multiplies the means by it
/// again.
class StepCompression : public Operation {
 public:
  /// Codecs and residuals are kept if name, shape and compressor stay. Between steps, when no task
  /// runs.
  virtual void set_plan(std::shared_ptr<const doc::Plan> plan) = 0;
  /// The phase of the next step, which follows from the number of steps that counted. The name of
  /// the step's variant ends with a dot and this phase. Empty if all steps are alike.
  virtual std::string phase() const = 0;
  /// Comes before the tasks of a step, when no task of the step before it runs. Random numbers are
  /// drawn from the number of steps that counted, so a step that is dropped and repeated draws the
  /// same ones.
  virtual void begin_step() = 0;
  /// Comes after begin_step(), with the variant that the step runs. Gradients that the variant
  /// sends dense take their parameters' residuals along, until keep() or drop(). If the step
  /// counts, those residuals are zero from then on. `shapes`: by position in the Plan.
  virtual void begin_dense(const doc::TaskGraph& graph,
                           std::span<const compress::Shape> shapes) = 0;
  /// The factor by which a scaler multiplied the loss of the step's gradients; absent: no scaler.
  /// Comes before the first task of a step, and stays until it is set again.
  void set_loss_scale(std::optional<double> scale) {
    loss_scale_ = scale ? std::optional(static_cast<float>(*scale)) : std::nullopt;
  }
  std::optional<float> loss_scale() const { return loss_scale_; }
  /// Whether the Plan's compressor turns means that travel dense into something else for the
  /// optimizer (Compressor::of_dense). Then each such mean is shown to it, once in a step.
  virtual bool sees_dense_means() const = 0;
  /// The step counts on every rank, except for the parameters of these names. No rank used those,
  /// so nobody takes their means and their residuals stay as they were.
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
