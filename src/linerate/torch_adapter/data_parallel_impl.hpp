// The members of a DataParallel. data_parallel_interface.cpp has its construction and interface;
// data_parallel_step.cpp has what happens within a step and at its end. Private to these two.
//
// One `mutex` guards all of it, because hooks fire on autograd's threads while the program's thread
// may call any function. The exchange itself (memory, plan, runner) is a ParameterExchange, which
// is made anew if the model changes.
#pragma once

#include <torch/optim/optimizer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/parameter_exchange.hpp"
#include "linerate/torch_adapter/partial_optimizer.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"

namespace linerate::torch_adapter {

struct DataParallel::Impl {
  /// `module`: null for loose tensors.
  Impl(ModelMembers all, torch::nn::Module* module, comm::Communicator& c,
       const DataParallelOptions& o);

  comm::Communicator& communicator;
  const DataParallelOptions options;
  /// In messages and names of collectives, the same on every rank. `title` tells which of the
  /// objects that share the communicator this is; `who` also has the class of rank 0's model.
  const std::string title;
  std::string who;
  ModelMembers members;  // that are exchanged, as the model names them
  ModelMembers now;      // that the model has
  const ChangingModel model;
  std::unique_ptr<ParameterExchange> exchange;
  std::vector<std::optional<std::size_t>> trained_of;  // by parameter: its place in the exchange
  std::optional<ModelWatch> watch;
  std::mutex mutex;  // hooks may fire on several threads
  std::int64_t step = 0;
  int accumulating = 0;
  std::atomic<bool> gradients_came = false;  // in this step
  bool deferred = false;  // another object's turn: nothing is sent before finish()
  std::optional<std::int64_t> samples;
  std::optional<double> loss_scale;  // of the loss whose gradients come next; absent: no scaler
  bool scale_is_taken = false;       // a gradient of this step has come under it
  MeasuredStep measured;             // of this step
  int sampled = 0;                   // parameters, in this step
  LeftGradients left;
  std::string failed;             // why no further step can run
  std::string warned_left_dense;  // in these words
  bool warned_no_backward = false, warned_again = false, warned_not_preconditioned = false;
  bool no_backward_is_meant = false;   // in this step
  bool loaded = false;                 // what compressors remember, since the last step
  bool awaits_preconditioner = false;  // a step that counts was not preconditioned yet
  EarlySending early;
  DelayedUpdates updates;  // of the step before
  const plan::AskedOfOptimizer asked;
  std::optional<SteppedOptimizer> stepping;          // in this step; absent: finish() alone
  std::optional<SteppedOptimizer> cleared_by;        // of the step before
  std::pair<std::uintptr_t, std::size_t> looked_at;  // at which optimizer, of how many parameters
  bool warned_doubtful = false, warned_not_held = false;
  std::shared_ptr<PartialOptimizer> taken_apart = std::make_shared<PartialOptimizer>();
  std::unique_ptr<GradientHooks> hooks;  // last: destroyed before the members that a hook uses

  ~Impl();
  ParameterExchange& x() { return *exchange; }
  std::string label() const;
  void make_exchange(ModelState state);
  /// Takes up what the model is made of now.
  void look_at_model();
  std::string problem_of_model() const;
  void refuse(const std::string& why);
  void take_members();
  void share_curvature();
  /// Shares the preconditioner; may be used between steps.
  CurvatureExchange& curvature();
  /// Null: nothing is preconditioned.
  Preconditioner* second_order() const {
    return KfacInside::preconditioner(options.preconditioner);
  }
  void check_usable() const;
  /// Whether a graph is captured where the parameters lie.
  bool captures();
  void require_no_capture();

  /// Call before anything that needs updated weights.
  void settle();

  // Within a step

  void on_gradient(std::size_t parameter);
  /// A gradient has come. Takes the loss scale of its backward pass, if the options or the program
  /// tell it.
  void take_scale();
  void forget_cleared_scale();
  void refuse_two_scales(std::optional<double> other);
  void on_use(std::size_t block, doc::FactorSide side, const Span& took);

  /// Throws if an optimizer has changed a weight between two gradients of one step, which means
  /// that finish() was forgotten. Looks at the first few parameters that get a gradient.
  void require_finished(std::size_t p, ParameterStep& mine);

  /// Whether gradients may leave as they come; if so, begins the step.
  bool may_send();

  /// Begins the step unless it has begun. If another object has the turn, nothing of the step is
  /// sent before the end of backward.
  void begin();

  // The end of a step

  enum class Ending {
    gradients,  // every .grad is the mean
    updates,    // the optimizer's turn, when they arrive
    nothing     // they are thrown away
  };

  /// Exchanges what stands in .grad on every rank.
  StepReport end(Ending ending, std::shared_ptr<PartialUpdates> optimizer = nullptr);
  void take_held(StepReport& report);
  void take_late_infinite(StepReport& report);

  /// The end of a step with one of LibTorch's optimizers. `preconditioner` may be null.
  StepReport step_with(torch::optim::Optimizer& optimizer, KFAC* preconditioner);
  void find_missed_gradients();
  void learn();
  void check_curvature(bool skips);
  void warn_not_preconditioned();

  /// Exchanges the step's gradients: once, and again after backward if what was sent is no longer
  /// valid.
  void run_rounds(StepReport& report);
  void note_infinite(StepReport& report);

  void require_all_skip();

  /// Call when parameters or buffers have other memory, types or shapes on some rank. Collective.
  void follow_change();
  /// Now, for the recorder; 0 without one.
  std::int64_t moment() const;
  void discard_gradients();

  /// Ends the step, whether it counted or not: the next one starts anew.
  void end_step();
  /// The optimizer's turn comes after this step's exchange, which is refused if it does not fit.
  std::vector<std::string> expect(SteppedOptimizer optimizer);
  /// The same for one of LibTorch's optimizers. Rank 0 logs the doubts.
  void expect(const torch::optim::Optimizer& optimizer);
  /// Which parameters with gradients are not this optimizer's, in words; empty: none.
  std::string not_held(const SteppedOptimizer& optimizer);
  /// Throws UsageError if the step() of another optimizer has cleared what this one would step by.
  void require_own_gradients(const StepReport& report);
  void warn_no_backward();
  void warn_again();
  bool any_rank_owes(const compress::CompressionState& state);
};

}  // namespace linerate::torch_adapter
