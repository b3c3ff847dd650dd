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
#include "linerate/exec/step_runner.hpp"

namespace linerate::exec {

/// One step: begin_step, report() of each observed task, then drain(), or end_step() if the Plan
/// carries tasks on into the next step.
///
/// Three kinds of threads do the work. Collectives are submitted as soon as the Plan lets them, and
/// the communicator's progress thread runs them. The codec's and the host's lane have a worker
/// each, which runs the lane's tasks. Tasks of the compute lane run on the caller's thread, inside
/// the functions that report or wait.
///
/// report() may be called from several threads. After an exception the runner refuses further steps
/// and tells what failed.
class Runner : public StepRunner {
 public:
  /// All arguments outlive the runner. `recorder` may be null.
  Runner(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder = nullptr);
  ~Runner() override;

  void set_operation(const std::string& name, Operation& operation) override;
  /// From the next plan on, tasks of operations that were not set wait in their lane for the Plan's
  /// `seconds`, like timers, until absolute deadlines.
  void let_other_operations_wait();

  void set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step = 0) override;

  /// Starts the step that the schedule names.
  void begin_step(const std::string& label = "");
  void begin_variant(std::string_view variant, const std::string& label = "") override;

  /// Reports an observed task of the current step as done.
  void report(std::uint32_t task);
  /// `end_ns`: when it was done, by steady_ns(); it may be a little in the past.
  void report(std::uint32_t task, std::int64_t end_ns);
  void report_backward(std::int32_t position) override;
  void report_factor(std::int32_t factor) override;
  void record_factor(std::int32_t factor, std::int64_t start_ns, std::int64_t end_ns) override;
  std::int64_t moment() override { return steady_ns(); }
  void report_before_factor(std::int32_t factor) override;
  void report_before_backward() override;
  void report_all(doc::TaskKind kind) override;
  /// Sleeps until all predecessors of an observed task of the current step are done. Returns when
  /// it could start: once those, and the tasks before it in its lane, were done.
  std::int64_t gate(std::uint32_t task);
  std::int64_t end_step() override;
  void drain() override;
  void wait_for(TaskId id) override;
  bool is_done(TaskId id) const override;
  TaskId current(std::uint32_t task) const override;
  void wait_idle() override;

  bool in_step() const override;
  const doc::TaskGraph& graph() const override;
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
