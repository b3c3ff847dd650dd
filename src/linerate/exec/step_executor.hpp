// Runs the executed tasks of a doc::Plan over a Communicator, in the Plan's order, while somebody
// else (autograd) reports the observed ones. It decides nothing that the Plan decided.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/recorder.hpp"

namespace linerate::exec {

/// The memory that communication tasks move. Its owner knows tensors; the executor does not.
class Payloads {
 public:
  virtual ~Payloads() = default;
  /// Buffer of a communication task: the whole array of S bytes (core/collective.hpp); a
  /// reduce-scatter leaves block rank() of it reduced, an all-gather starts from that block. Stays
  /// valid until arrived() or the end of the step.
  virtual comm::Buffer buffer(const doc::TaskGraph& graph, const doc::Task& task) = 0;
  /// Called once the task's result is complete, from the call that noticed it.
  virtual void arrived(const doc::TaskGraph& graph, const doc::Task& task) = 0;
};

/// What an executed task that is no communication does: encode, decode, inverse ... Runs on the
/// thread that completed its last predecessor.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run(const doc::TaskGraph& graph, const doc::Task& task) = 0;
};

/// One step: begin_step, gradient_ready for every position in any order, launch_rest, wait.
/// Not thread-safe; the caller serialises. After an exception the executor refuses further steps.
class StepExecutor {
 public:
  /// All arguments outlive the executor. `recorder` may be null.
  StepExecutor(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder = nullptr);

  /// Which operation runs the executed tasks of a kind. Set before set_plan.
  void set_operation(doc::TaskKind kind, Operation& operation);
  /// Tasks of this kind are the caller's, who runs them after wait(): the optimizer of a training
  /// loop. Set before set_plan.
  void leave_to_caller(doc::TaskKind kind) { callers_.insert(kind); }

  /// From now on steps follow this plan, the next one being its step `first_step`. Its hash is
  /// compared across ranks: a difference throws CommError on every rank, naming both sides. Throws
  /// UsageError for a task that nothing here can execute. Collective, and only between steps.
  void set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step = 0);

  /// Starts the step that the schedule names, or the variant that a flag agreed by all ranks
  /// selected. With `hold`, nothing is launched before launch_rest.
  void begin_step(bool hold = false);
  void begin_variant(std::string_view variant, bool hold = false);
  /// The gradient at this position of the plan is in its payload.
  void gradient_ready(std::int32_t position);
  /// Launches what is left; every gradient of the plan must have been reported.
  void launch_rest();
  /// Sleeps until every task is done. Throws the CommError of a failed collective.
  void wait();
  /// Tells a variant agreed by all ranks before the step: the largest of the ranks' requests (0: as
  /// scheduled). Collective, between steps.
  int agree_flag(int request);

  bool in_step() const { return in_step_; }
  /// Between begin_step and wait: the step's variant.
  const doc::TaskGraph& graph() const;
  const doc::Plan& plan() const { return *plan_; }
  /// Of the plan's schedule: the next step to begin.
  std::int64_t next_step() const { return step_; }

 private:
  struct TaskState {
    std::int32_t waiting = 0;  // predecessors and gradients that are not there yet
    std::int64_t ready_ns = -1;
    std::int64_t bytes = -1;  // of a collective's payload
    comm::WorkPtr work;
  };
  /// What a variant needs at run time, derived from its graph once.
  struct Variant {
    std::array<std::vector<std::uint32_t>, doc::kResourceNames.size()>
        queues;                                           // executed tasks, Plan order
    std::vector<std::vector<std::uint32_t>> successors;   // executed ones, by task
    std::vector<std::vector<std::uint32_t>> of_gradient;  // executed ones, by position
    std::vector<std::int32_t> waiting;                    // TaskState::waiting at the start
    std::vector<std::int32_t> names, sets;                // Recorder's ids, by task
    std::int32_t executed = 0;
  };

  Variant prepare(const doc::TaskGraph& graph);
  void name_tasks(const doc::TaskGraph& graph, Variant& variant);
  void check_executable(const doc::TaskGraph& graph, const doc::Task& task) const;
  bool executes(const doc::Task& task) const;
  void start(std::size_t variant, bool hold);
  void advance();
  void run(std::uint32_t task);
  comm::WorkPtr submit(const doc::Task& task, const comm::Buffer& whole);
  void collect();
  void complete(std::uint32_t task, std::int64_t start_ns, std::int64_t end_ns);
  template <typename Action>
  void guarded(Action action);

  comm::Communicator& communicator_;
  Payloads& payloads_;
  Recorder* recorder_;
  std::map<doc::TaskKind, Operation*> operations_;
  std::set<doc::TaskKind> callers_;
  std::shared_ptr<const doc::Plan> plan_;
  std::vector<Variant> variants_;
  std::size_t current_ = 0;
  std::int64_t step_ = 0;
  bool in_step_ = false, hold_ = false, failed_ = false;
  std::vector<TaskState> state_;
  std::vector<bool> seen_;  // by gradient position
  std::array<std::size_t, doc::kResourceNames.size()>
      next_{};  // per resource: its first task not yet started
  std::deque<std::uint32_t> in_flight_;
  std::int32_t left_ = 0;  // executed tasks not complete
};

}  // namespace linerate::exec
