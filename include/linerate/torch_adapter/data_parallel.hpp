// Makes a LibTorch program data-parallel: one line constructs a communicator, one wraps the model,
// one finishes a step.
//
//   auto communicator = comm::make_world({});
//   torch_adapter::DataParallel parallel(*model, *communicator, {.strategy = "ddp"});
//   ...
//   loss.backward();
//   parallel.finish();          // every .grad is now the mean over the ranks
//   optimizer.step();
//
// or, in one call, which lets "dear" exchange and update under the next forward pass:
//
//   loss.backward();
//   parallel.step(optimizer);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/torch_adapter/options.hpp"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}
namespace linerate::torch_adapter {

struct KfacState;  // kfac/kfac_state.hpp

/// One per model and rank. Constructor, set_batch(), finish(), step(), skip_step() and
/// require_same_weights() are collective: every rank calls them in the same order, over all objects
/// that share a communicator.
///
/// Gradients after finish() are the sum over ranks of weight * .grad, as .grad stood when finish()
/// was called. They are bitwise the same on every rank. weight is 1 / ranks, or the rank's share of
/// the samples after set_batch(). They are views of exchange buffers, overwritten in the next step;
/// clone what must live longer. Between backward and finish() .grad is this rank's own.
///
/// The first step exchanges after backward and learns how often each parameter gets a gradient and
/// in which order; later ones overlap with backward. What was sent early and has changed since (one
/// more backward pass than learned, cleared or rescaled gradients) is sent again in finish().
///
/// The model may be loaded, moved, retyped, frozen and thawed, and its layers may be replaced,
/// added and removed. The next finish() notices a change on any rank. It compares all ranks and
/// plans anew, or throws on every rank. A new layer is exchanged from then on, its first gradient
/// too, if it began alike on all ranks. A replaced one that K-FAC preconditions is an error.
///
/// finish() throws errors that concern one step (a refusal, ranks that differ) on every rank. .grad
/// is then still this rank's own, and the next step may run. After a CommError of a collective no
/// further step can. Thread safety: one thread at a time, the same order of calls on every rank
/// over all objects that share a communicator. Backward passes may use other threads: their hooks
/// take a lock. Weights that step() has left to be updated may be read from any thread.
class DataParallel {
 public:
  /// Compares the models of all ranks, then broadcasts rank 0's parameters and buffers. Throws
  /// CommError on every rank if they differ. Throws UsageError on every rank if any rank has
  /// something unsupported. That is sparse gradients, complex or quantised types, undefined or
  /// overlapping memory, or parameters that are not on the CPU without
  /// DataParallelOptions::device_group. `communicator` and `model` outlive this object, since each
  /// finish() looks at the model. There is one exception: a model that a shared_ptr held at
  /// construction may be destroyed earlier, and is looked at no more. The model's tensors are kept
  /// alive.
  DataParallel(torch::nn::Module& model, comm::Communicator& communicator,
               DataParallelOptions options = {});
  /// The same for loose tensors: these, until set_tensors() says others. A parameter that appears
  /// twice (a shared module) counts once, by its first name.
  DataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
               comm::Communicator& communicator, DataParallelOptions options = {});
  /// Removes the hooks; submits nothing. Warns if gradients came without finish(), and if updates
  /// of step() are under way, which are done first.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Backward passes run inside `work` only accumulate into .grad; nothing is sent. The next
  /// backward outside, or finish(), exchanges the accumulated sum. Allowed anywhere in a step.
  template <typename Work>
  void accumulate(Work&& work) {
    const NoSync guard = no_sync();
    std::forward<Work>(work)();
  }
  /// Of loose tensors: those that are exchanged from the next finish() on, on every rank the same.
  void set_tensors(NamedTensors parameters, NamedTensors buffers);
  /// accumulate() as a guard, for as long as it lives. Guards nest.
  /// Thread safety: as its owner.
  class NoSync {
   public:
    /// `owner` outlives the guard.
    explicit NoSync(DataParallel& owner);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& owner_;
  };
  /// accumulate() as a guard: keep what it returns.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Before backward: this rank's batch holds so many samples (0 is fine: call finish() without a
  /// backward). Gradients of mean losses then add up to that of the mean over all ranks' samples.
  /// Either all ranks call it in a step, or none.
  void set_batch(std::int64_t samples);

  /// Before backward, on every rank: the loss of this and later steps is multiplied by `scale`. The
  /// program divides gradients by it after finish(), or leaves out the step if some are not finite.
  /// What compressors keep between steps is in units of the loss, so that the scale may change
  /// between steps. A gradient that f16 cannot hold (fp16, wire=fp16) becomes an infinity for every
  /// rank; under a compressor finish() then reports `infinite`. Absent: the loss is not scaled, and
  /// f16 cuts off values whose sum over ranks would not fit. Throws UsageError unless scale and 1 /
  /// scale are normal numbers of f32. finish() throws UsageError on every rank if ranks have
  /// different scales under a compressor. It also does so if gradients of two scales were added up
  /// in one step. Does not communicate.
  void set_loss_scale(std::optional<double> scale);
  /// Whether a backward pass of this step has said its scale (DataParallelOptions::scale_of_pass),
  /// or a gradient came after set_loss_scale() had.
  bool knows_loss_scale() const;
  /// Where a backward pass begins: if all gradients have been cleared since they came, so is their
  /// scale.
  void forget_cleared_scale();

  /// Waits until every gradient is exchanged. Once per step on every rank, between backward and
  /// whatever reads gradients. It always takes part: a rank without a backward pass counts as zero,
  /// with a warning on its first time. Throws UsageError on every rank if any rank skips the step
  /// or its model differs. Throws the reason given to refuse_step(), and CommError if a collective
  /// failed.
  StepReport finish();
  /// finish() and optimizer.step() in one, as the plan has them; .grad of this object's parameters
  /// is undefined afterwards. If the plan gathers gradients under the next forward pass ("dear"),
  /// it returns when the ranks have agreed that the step counts. Each weight is then updated before
  /// the first ATen operator that reads it, on any thread: forward passes, evaluation, another
  /// optimizer. What reads memory past ATen (torch::save, raw pointers, the optimizer's state) has
  /// to call settle() first. Options and state of the optimizer are those of this call; it may be
  /// changed or gone before the updates are done. Optimizers that cannot be stepped for some
  /// parameters alone (all but SGD, Adam, AdamW, Adagrad, RMSprop) wait for all gradients. Throws
  /// as finish() does, and UsageError on every rank for an optimizer that does not fit. These do
  /// not fit: an optimizer without a parameter of this model; SGD with momentum, if the strategy's
  /// compressor has momentum of its own (dgc). Nor do Adam and AdamW, if the compressor sends a
  /// first moment (onebit-adam). Nor does a second optimizer, if no rank has had a backward pass
  /// since the step() of the first, which cleared the gradients of both. A failure that comes too
  /// late for that is thrown by the next call, and weights that were not updated by then are
  /// unusable. Several optimizers: finish(), then step() and zero_grad() of each.
  StepReport step(torch::optim::Optimizer& optimizer);
  /// The same for any optimizer that can be taken apart, if gradients_may_follow(); else call
  /// finish() and step it as a whole. With a preconditioner, too. Call expect() before.
  StepReport step(std::shared_ptr<PartialUpdates> optimizer);
  /// Before finish() or step(), between backward and both: that this optimizer is stepped next, of
  /// a kind that LibTorch does not know. If it does not fit, that call throws UsageError on every
  /// rank, as step() does. Returns doubts to tell the user, each once. They are about a first
  /// moment of a first moment, and about parameters that got gradients and are not the optimizer's.
  /// Does not communicate.
  [[nodiscard]] std::vector<std::string> expect(const SteppedOptimizer& optimizer);
  /// Whether the plan in force gathers gradients under the next forward pass.
  bool gradients_may_follow() const;
  /// Whether backward passes have left gradients that are not exchanged yet. Of any thread.
  bool gradients_came() const;
  /// Whether weights wait for their update of step().
  bool updates_pending() const;
  /// Where other code may have written its own hooks into the parameters since: before a forward
  /// pass. What it has missed, finish() sends.
  void renew_hooks();
  /// finish(), the preconditioner's step() and the optimizer's in one; .grad is undefined
  /// afterwards. `preconditioner` is that of the options. Under "dear" each layer is preconditioned
  /// and updated before the first operator that reads its weight.
  StepReport step(KFAC& preconditioner, torch::optim::Optimizer& optimizer);
  /// The same for optimizers that compute the gradients themselves, as LBFGS does: `closure` zeroes
  /// gradients, runs forward and backward and returns the loss. Each of its calls is a step with
  /// an exchange of its own; every rank has to make as many.
  StepReport step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);
  /// Updates of step() that are still under way are done now, the optimizer's state included.
  /// Does not communicate beyond waiting. Throws CommError when a collective failed.
  void settle();
  /// Before finish(): that this rank has no backward pass in this step is meant, and its gradients
  /// count as zero. As finish() without it, which warns. Does not communicate.
  void expect_no_backward();
  /// Instead of finish(), on every rank: takes part in what was sent already and throws the step's
  /// gradients away; .grad is undefined afterwards. Throws as finish() does.
  void skip_step();
  /// This rank cannot finish the current step: its finish() throws an InputError with this reason
  /// and the rank's number, on every rank. Does not communicate.
  void refuse_step(const std::string& reason);

  /// The state that compressors of all ranks keep between steps (residuals, warm-started factors),
  /// for a checkpoint. One string for each rank; empty if the strategy has no compressor and there
  /// is no residual. Collective.
  [[nodiscard]] std::vector<std::string> compression_state();
  /// Goes on with the result of compression_state(). A run of as many ranks goes on bit for bit. In
  /// a run of another number of ranks every rank takes the mean residual. `place` names the file.
  /// Throws InputError, also for residuals that no step can have left: infinities, NaNs, or
  /// magnitudes above 2^64.
  void load_compression_state(std::span<const std::string> parts, const std::string& place);

  /// The preconditioner's averages of all ranks together, the same on every rank: for a checkpoint.
  /// KFAC::save() lacks what other ranks own. Between steps. Collective.
  [[nodiscard]] KfacState curvature_state();
  /// Goes on with such a state, also from another number of ranks or way to share; recomputes
  /// inverses where they are held. On every rank, before a step. Throws InputError.
  void load_curvature_state(const KfacState& state);

  /// Compares the bits of all parameters, and of buffers that are broadcast, over ranks. If they
  /// differ, throws a CommError on every rank that begins with `what` and names the first that
  /// differs.
  void require_same_weights(const std::string& what);

  /// The plan in force. Before the first step it is planned for reverse registration order. Then it
  /// is rebuilt once (for strategies that plan by ready times twice) in an order that all ranks
  /// agreed on. A step sends, converts and waits for nothing that it does not name.
  const doc::Plan& plan() const;
  /// The gradients in ready order with their measured ready times, rank 0's order, mean over ranks;
  /// all 0 before the first step. Times count from the first gradient, since hooks see no earlier
  /// moment. That is enough to plan, as only differences count, but backward_s lacks the time
  /// before it. To predict steps, record a run (`linerate train --record`).
  [[nodiscard]] doc::Workload workload() const;
  /// True once the plan will not change any more: with "auto" and with K-FAC that shares factors,
  /// never.
  bool plan_is_final() const;
  /// With "auto" and K-FAC: how many plans were made from measured steps so far. The plan in force
  /// names its strategy.
  int measured_plans() const;
  /// What the trial against ddp has found (DataParallelOptions::most_above_ddp), in words; empty
  /// before, and if there is none.
  std::string trial_in_words() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linerate::torch_adapter
