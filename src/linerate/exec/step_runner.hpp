// The interface through which training has the tasks of its steps run.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// One step: begin_variant(), a report of each observed task, end_step(), then drain() unless the
/// Plan carries tasks on into the next step.
///
/// There are two implementations. Runner does the work on this host, and its functions that wait
/// sleep until the work is done. StreamSteps (torch_adapter) enqueues the work on a device and
/// never sleeps; where Runner has done something, StreamSteps has enqueued it. After an exception
/// either refuses further steps and tells what failed.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Sets what runs the tasks of this operation; before set_plan.
  virtual void set_operation(const std::string& name, Operation& operation) = 0;
  /// From now on steps follow this plan, the next one being its step `first_step`. Its hash is
  /// compared across ranks: a difference throws CommError on every rank, naming both sides. Throws
  /// UsageError for a task that nothing here can execute. Collective, and only between steps.
  virtual void set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step) = 0;

  /// Starts a variant that all ranks agreed on. The names of its collectives begin with `label`:
  /// "step 7" makes "step 7: all-reduce bucket 0".
  virtual void begin_variant(std::string_view variant, const std::string& label) = 0;

  /// Each reports observed tasks of the current step as done. report_backward() reports the
  /// backward task of a gradient. report_factor() reports the task that computes a factor, if this
  /// rank has it in this step. report_before_factor() and report_before_backward() report all tasks
  /// that are left before that factor's, or before the first backward task. report_all() reports
  /// all that are left of a kind.
  virtual void report_backward(std::int32_t position) = 0;
  virtual void report_factor(std::int32_t factor) = 0;
  virtual void report_before_factor(std::int32_t factor) = 0;
  virtual void report_before_backward() = 0;
  virtual void report_all(doc::TaskKind kind) = 0;
  /// Records for the Timeline that a part of a factor was computed in this time.
  virtual void record_factor(std::int32_t factor, std::int64_t start_ns, std::int64_t end_ns) = 0;

  /// Waits until the step's compute lane is done; its observed tasks must have been reported. Then
  /// another step may begin while other lanes finish this one. Returns when the lane was done.
  /// Throws as drain().
  virtual std::int64_t end_step() = 0;
  /// Waits until every executed task of every open step is done. Throws what a task or collective
  /// failed with.
  virtual void drain() = 0;
  /// Does work of the program's: updates, memory for a step. On a device this work comes after all
  /// that the calling thread has enqueued, and before all that it enqueues next.
  virtual void compute(const std::function<void()>& work) { work(); }
  /// Waits until one executed task is done. Throws as drain().
  virtual void wait_for(TaskId id) = 0;
  /// Whether wait_for() has nothing to wait for. Does not wait.
  virtual bool is_done(TaskId id) const = 0;
  /// Waits until nothing is in flight: until the next report, nothing will be submitted.
  virtual void wait_idle() = 0;

  /// A task of the current step (between steps: of the last one) as an id that stays valid in later
  /// steps.
  virtual TaskId current(std::uint32_t task) const = 0;
  virtual bool in_step() const = 0;
  /// Now, by the clock of this runner's times: the steady clock in ns. If steps are enqueued and
  /// measured, it is the number of a device's moment. The device reaches that moment when it has
  /// done all that is enqueued so far. Never -1.
  virtual std::int64_t moment() = 0;
  /// The current step's variant, or that of the step before.
  virtual const doc::TaskGraph& graph() const = 0;

 protected:
  /// Throws on every rank unless the plan is the same on all of them, valid, and for this number of
  /// ranks. Collective.
  static void agree_on(const doc::Plan& plan, comm::Communicator& communicator);
  /// Throws the error of a runner one of whose steps has failed with `failure`.
  [[noreturn]] static void refuse_after(const std::exception_ptr& failure);
};

}  // namespace linerate::exec
