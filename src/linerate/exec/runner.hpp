// Runs the executed tasks of a Plan over a Communicator: the step machine with threads, clocks and
// memory. Others (autograd, an optimizer) drive observed tasks and report them.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

// A communication task as a call of a Communicator (collective.cpp).

/// Throws UsageError unless it is sum, max or min.
comm::Reduce reduction_of(const doc::Plan& plan, const doc::Task& task);

/// Throws UsageError unless a reduction is sum, max or min.
void check_collective(const doc::Plan& plan, const doc::Task& task);

/// Submits the collective of a task among the ranks of `group`. All-to-all goes from the task's
/// first payload into its last; other kinds work in place on the first. Throws InternalError if the
/// payload's size is not the Plan's.
comm::WorkPtr submit_collective(const doc::Plan& plan, const doc::TaskGraph& graph,
                                const doc::Task& task, comm::Communicator& group,
                                Payloads& payloads, const std::string& title);

// The runner.

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

  void report(std::uint32_t task) override;
  /// `end_ns`: when it was done, by steady_ns(); it may be a little in the past.
  void report(std::uint32_t task, std::int64_t end_ns);
  void record_factor(std::int32_t factor, std::int64_t start_ns, std::int64_t end_ns) override;
  std::int64_t moment() override { return steady_ns(); }
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

 private:
  struct State;

  const VariantNames& names() const override;
  bool is_left(std::uint32_t task) const override;
  void wait_before(std::uint32_t task) override { gate(task); }

  std::shared_ptr<State> state_;  // shared with collectives under way
  int unwinding_ = std::uncaught_exceptions();
};

// The names of a variant's tasks, and the observed task of each gradient and factor: made once for
// a Plan, used in every step.

inline constexpr std::uint32_t kNoTask = ~0u;

/// Adds the names of the parameters of a task's gradients.
void add_parameters(std::vector<std::string>& names, const doc::Plan& plan,
                    const doc::TaskGraph& graph, const doc::Task& task);

struct VariantNames {
  /// `recorder` may be null: then there are no events.
  VariantNames(const doc::Plan& plan, const doc::TaskGraph& graph, Recorder* recorder);

  /// What to record of a task that took this time.
  doc::Event event_of(std::uint32_t task, std::int64_t ready_ns, std::int64_t start_ns,
                      std::int64_t end_ns) const;

  std::vector<std::string> titles;         // of executed tasks
  std::vector<doc::Event> events;          // of tasks, with the Recorder's ids and without times
  std::vector<std::uint32_t> backward_of;  // [gradients] kNoTask: the variant has none
  std::vector<std::uint32_t> factor_of;    // [factors] the task that computes it; kNoTask: as above
};

}  // namespace linerate::exec
