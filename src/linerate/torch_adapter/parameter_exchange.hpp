// The exchange of one set of parameters of fixed types and shapes: memory, plan and runner. A
// changed model gets another one. Private to torch_adapter.
//
// It ties together the parts that a step needs. PayloadMemory has the arrays and StepTensors the
// operations on gradients. A StepCompression has the codecs and CurvatureExchange the operations of
// K-FAC. RunPlanner makes the plan, and a Runner or StreamSteps runs it. Callers report gradients
// and factors by parameter and layer; this class turns them into tasks of the Plan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "linerate/exec/compression.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/curvature_exchange.hpp"
#include "linerate/torch_adapter/gradient_hooks.hpp"
#include "linerate/torch_adapter/options.hpp"
#include "linerate/torch_adapter/partial_optimizer.hpp"
#include "linerate/torch_adapter/payload_memory.hpp"
#include "linerate/torch_adapter/run_planner.hpp"
#include "linerate/torch_adapter/step_operations.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"

namespace linerate::torch_adapter {

/// Which variant of the Plan a step runs.
enum class Sending {
  scheduled,       // as the Plan's schedule says
  after_backward,  // nothing before finish()
};

class ParameterExchange {
 public:
  /// Collective. `who` stands in errors. Throws UsageError on every rank for a strategy that cannot
  /// train.
  ParameterExchange(ModelState state, comm::Communicator& communicator,
                    const DataParallelOptions& options, const std::string& who);
  ~ParameterExchange();

  const ModelState& state() const { return state_; }
  GradientCount& count() { return count_; }
  StepTensors& tensors() { return tensors_; }
  const RunPlanner& planner() const { return *planner_; }
  exec::StepCompression& compression() const { return *coding_; }
  /// Null: only gradients are exchanged.
  CurvatureExchange* curvature() { return curvature_ ? &*curvature_ : nullptr; }
  const exec::StepRunner& runner() const { return *runner_; }
  exec::StepRunner& runner() { return *runner_; }
  bool enqueues() const { return streams_ != nullptr; }
  /// How often the host has waited for a device since the step began.
  std::int64_t host_waits() const { return streams_ ? streams_->host_waits() : 0; }

  /// Starts a step; the names of its collectives begin with `label`.
  void begin(Sending sending, std::optional<std::int64_t> samples, const std::string& label);
  /// The factor by which the loss of the gradients to come is multiplied; absent: no scaler. It
  /// holds from the next round on that has no gradient yet.
  void set_loss_scale(std::optional<double> scale) { loss_scale_ = scale; }
  /// A parameter's gradient is complete.
  void report(std::size_t parameter);
  /// How often each layer was used in the step, by factor (doc::factor_index): side A counts
  /// inputs, side G gradients of outputs.
  GradientCount& uses() { return uses_; }
  /// A layer's inputs are complete: the tasks before its forward pass are done.
  void report_inputs(std::int32_t block);
  /// Reports what is left, in the order of the plan, and sleeps until the step may end. Then its
  /// flags are known, and only gradients may arrive later.
  void run_to_end();
  /// Whether the plan lets gradients arrive under the next forward pass.
  bool gradients_may_follow() const;
  /// The gradients of the last step, by bucket, in the order in which they arrive. Gradients of a
  /// preconditioned layer come together, once the last of them has arrived.
  std::vector<ArrivingBucket> arriving();
  /// Learns from a step that counted, whose gradients and inverses are filled in here. Returns true
  /// if another plan is to be taken before the next step. Collective after some steps, and then it
  /// may wait for a device.
  bool learn(MeasuredStep step);
  /// Takes the planner's plan. No task of the plan before runs any more.
  void take_plan();

  /// Payload bytes that the step's gradients took, in the wire's element types.
  std::int64_t gradient_bytes() const;

 private:
  void make_runner(const DataParallelOptions& options, const std::string& who);
  void enter_backward();
  void report_curvature_of(std::int32_t block);
  std::set<std::string> untaken();
  EnqueuedSteps enqueued_steps();
  std::size_t blocks() const { return curvature_ ? uses_.size() / 2 : 0; }

  comm::Communicator& communicator_;
  const ModelState state_;
  PayloadMemory memory_;
  GradientCount count_;
  exec::Compression compression_;
  std::unique_ptr<StreamCompression> enqueued_;  // in its place, if steps are enqueued
  exec::StepCompression* coding_ = &compression_;
  StepTensors tensors_;
  Preconditioner* const pre_;  // null: nothing is preconditioned
  GradientCount uses_;
  std::vector<compress::Shape> shapes_;  // by position in the Plan
  std::vector<std::int32_t> block_of_;   // by parameter: whose gradient it is; -1: of none
  std::optional<plan::Kfac> kfac_;
  std::optional<CurvatureExchange> curvature_;
  std::optional<RunPlanner> planner_;
  std::vector<MeasuredStep> measured_;  // of the planner's window, if its times are a device's
  std::unique_ptr<exec::StepRunner> runner_;
  StreamSteps* streams_ = nullptr;  // the runner, if it enqueues
  std::string label_;               // of the step
  bool in_backward_ = false;
  std::optional<double> loss_scale_;
};

}  // namespace linerate::torch_adapter
