// Runs the executed tasks of a Plan over a Communicator: the step machine with threads, clocks and
// memory. Others (autograd, an optimizer) drive observed tasks and report them.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// One step: begin_step, report() of each observed task, then drain(), or end_step() if the Plan
/// carries tasks on into the next step. Collectives are submitted, and tasks of the codec's and the
/// host's lane run on a worker each, as soon as the Plan lets them; tasks of the compute lane run
/// inside the functions that report or wait, on the caller's thread. report() may be called from
/// several threads. After an exception the runner refuses further steps, saying what failed.
class Runner {
 public:
  /// All arguments outlive the runner. `recorder` may be null.
  Runner(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder = nullptr);
  ~Runner();

  /// Sets what runs the tasks of this operation; before set_plan.
  void set_operation(const std::string& name, Operation& operation);
  /// From the next plan on, tasks of operations that were not set wait in their lane for the Plan's
  /// `seconds`, like timers, until absolute deadlines.
  void let_other_operations_wait();

  /// From now on steps follow this plan, the next one being its step `first_step`. Its hash is
  /// compared across ranks: a difference throws CommError on every rank, naming both sides. Throws
  /// UsageError for a task that nothing here can execute. Collective, and only between steps.
  void set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step = 0);

  /// Starts the step that the schedule names, or a variant that all ranks agreed on. The names of
  /// its collectives begin with `label`: "step 7" makes "step 7: all-reduce bucket 0".
  void begin_step(const std::string& label = "");
  void begin_variant(std::string_view variant, const std::string& label = "");

  /// Report observed tasks of the current step as done: this one; the backward task of a gradient;
  /// the task that computes a factor, if this rank has it in this step; all that are left before a
  /// factor's, or before the first backward task; all that are left of a kind.
  void report(std::uint32_t task);
  /// `end_ns` of steady_ns() may be a little in the past.
  void report(std::uint32_t task, std::int64_t end_ns);
  void report_backward(std::int32_t position);
  void report_factor(std::int32_t factor);
  /// Records for the Timeline that a part of it was computed in this time.
  void record_factor(std::int32_t factor, std::int64_t start_ns, std::int64_t end_ns);
  void report_before_factor(std::int32_t factor);
  void report_before_backward();
  void report_all(doc::TaskKind kind);
  /// Sleeps until all predecessors of an observed task of the current step are done. Returns when
  /// it could start: once those, and the tasks before it in its lane, were done.
  std::int64_t gate(std::uint32_t task);
  /// Sleeps until the step's compute lane is done; its observed tasks must have been reported. Then
  /// another step may begin while other lanes finish this one. Returns when the lane was done.
  /// Throws as drain().
  std::int64_t end_step();
  /// Sleeps until every executed task of every open step is done. Throws what a task or collective
  /// failed with.
  void drain();
  /// Sleeps until one executed task is done. Throws as drain().
  void wait_for(TaskId id);
  /// A task of the current step, or of the last one between steps, under a name that stays.
  TaskId current(std::uint32_t task) const;
  /// Sleeps until nothing is under way: until the next report, nothing will be submitted.
  void wait_idle();

  bool in_step() const;
  /// The current step's variant, or that of the step before.
  const doc::TaskGraph& graph() const;
  const doc::Plan& plan() const;
  /// Of the plan's schedule: the next step to begin.
  std::int64_t next_step() const;

 private:
  struct State;

  void report_left(std::uint32_t end);

  std::shared_ptr<State> state_;  // shared with collectives under way
  int unwinding_ = std::uncaught_exceptions();
};

}  // namespace linerate::exec
