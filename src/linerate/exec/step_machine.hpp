// The interface through which the runner reaches the memory and the work of others.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {

/// The payload that holds how many elements each rank sends of `payload`; -1 if the Plan gives
/// these numbers.
std::int32_t counts_of(const doc::TaskGraph& graph, std::int32_t payload);

/// The memory of payloads. Its owner knows tensors; the runner does not.
class Payloads {
 public:
  virtual ~Payloads() = default;
  /// The whole array of a payload, padding included: reduce-scatter leaves block rank() of it
  /// reduced, all-gather starts from that block.
  virtual comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) = 0;
  /// The memory that this rank adds to a sum, if it is not in that array yet: pieces as in
  /// Communicator::all_reduce. Empty: the array as it is.
  virtual std::vector<comm::Piece> pieces(const doc::TaskGraph&, std::int32_t) { return {}; }
  /// Keeps that array and its pieces where they are. The runner holds the result while a collective
  /// is in flight, which may be longer than the runner lives. Null: the array outlives every
  /// collective by itself.
  virtual std::shared_ptr<const void> hold(const doc::TaskGraph&, std::int32_t) { return nullptr; }
  /// For gathers of unequal sizes: the elements of each rank's part, in the group's order, as the
  /// payload of counts has them.
  virtual std::vector<std::int64_t> counts(const doc::TaskGraph& graph, const doc::Task& task);
};

/// The work of an executed task other than communication: scale, cast, pack ... Runs in the lane
/// that the Plan names: on the thread that drives the compute lane, or on a worker.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run(const doc::TaskGraph& graph, const doc::Task& task) = 0;
};

// The core of the runner: which tasks of a Plan one rank may start, given what is done. It has no
// threads, clocks or memory to move: an event goes in, the tasks to start come out.

/// A task of an open step.
struct TaskId {
  std::int64_t step = 0;
  std::uint32_t task = 0;

  bool operator==(const TaskId&) const = default;
};

/// The results of an event, in order.
struct Moves {
  std::vector<TaskId> ready;  // the last predecessor is done
  std::vector<TaskId> start;  // and the lane is free

  void clear() { ready.clear(), start.clear(); }
};

/// The edges of a variant into the next step whose two tasks this rank has, ordered by `from`.
std::vector<doc::NextStepEdge> edges_into_next(const doc::Plan& plan, const doc::TaskGraph& graph,
                                               std::int32_t rank);

/// Obeys the Plan and nothing else. A task may start when its predecessors are done, also those of
/// the step before. Within a lane, tasks start in Plan order, through open steps one after the
/// other, and each starts when the one before it is done. The network's lane is different, because
/// it hands tasks to a queue of its own (comm::Communicator). There a task starts as soon as the
/// task before it has started. Several steps may be open at once.
///
/// Others drive observed tasks. `start` names an observed task when its gate is open and its lane
/// has come to it. Such a task may be reported done earlier, because autograd keeps to its own
/// order, but not before its predecessors are done. An early report takes effect when the tasks
/// before it in the lane are done, because the Plan counts on that order.
///
/// It has no clock: each event comes with its time in nanoseconds, from which it derives when a
/// task could run.
class StepMachine {
 public:
  /// The first step to open is `first_step` of the Plan's schedule.
  StepMachine(std::shared_ptr<const doc::Plan> plan, std::int32_t rank,
              std::int64_t first_step = 0);

  /// Opens the next step as the variant of this index, or as scheduled (-1). Returns its number.
  std::int64_t begin_step(std::int32_t variant, Moves& moves, std::int64_t at = 0);
  /// Throws InternalError for a task that is not open, done or reported already, executed and not
  /// started, or observed and past its gate.
  void done(TaskId id, Moves& moves, std::int64_t at = 0);

  /// The latest of its predecessors' ends and its step's beginning, for a task of an open step
  /// whose predecessors are done.
  std::int64_t ready_at(TaskId id) const { return at(id.step).ready_at[id.task]; }
  /// The latest moment at which a task of this lane was done.
  std::int64_t free_at(doc::Resource lane) const { return lanes_[to_index(lane)].free_at; }
  /// The later of both, for a task that its lane has come to.
  std::int64_t could_start_at(TaskId id) const {
    return std::max(ready_at(id), free_at(task(id).resource));
  }

  /// Whether every predecessor is done.
  bool gate(TaskId id) const;
  bool is_done(TaskId id) const;
  bool is_open(std::int64_t step) const;
  /// No executed task of this step is left in that lane.
  bool has_executed(std::int64_t step, doc::Resource lane) const;
  bool idle() const { return open_.empty(); }
  /// Executed tasks of open steps that are not done.
  std::int64_t executed_left() const { return executed_left_; }
  /// The first executed task that is not done; only while executed_left() > 0.
  TaskId first_left() const;

  std::int64_t next_step() const { return next_step_; }
  /// The state of an open step.
  std::int32_t variant(std::int64_t step) const { return at(step).variant; }
  const doc::TaskGraph& graph(std::int64_t step) const {
    return plan_->variants[to_index(at(step).variant)];
  }
  const doc::Task& task(TaskId id) const { return graph(id.step).tasks[id.task]; }
  const doc::VariantIndex& index(std::int32_t variant) const {
    return variants_[to_index(variant)].index;
  }

 private:
  enum class State : std::uint8_t { waiting, reported, started, done };
  struct Variant {
    doc::VariantIndex index;
    std::vector<doc::NextStepEdge> crossing;  // edges between tasks that this rank has, by `from`
  };
  struct Step {
    std::int64_t number = 0;
    std::int32_t variant = 0;
    std::vector<std::int32_t> waits;
    std::vector<State> state;
    std::vector<std::int64_t> ready_at;
    std::int32_t left = 0;
  };
  /// How far a lane has come.
  struct Lane {
    std::int64_t step = 0;
    std::size_t next = 0;
    std::int64_t free_at = 0;
  };

  std::size_t position_of(std::int64_t step) const;
  const Step& at(std::int64_t step) const { return open_[position_of(step)]; }
  Step& at(std::int64_t step) { return open_[position_of(step)]; }
  void complete(Step& step, std::uint32_t task, Moves& moves);
  void release(Step& step, std::uint32_t task, Moves& moves);
  void release_next_step(const Step& from, std::uint32_t task, Moves& moves);
  bool advance(std::size_t lane, Moves& moves);
  void advance_all(Moves& moves);
  void close_finished();

  std::shared_ptr<const doc::Plan> plan_;
  std::vector<Variant> variants_;
  std::deque<Step> open_;
  std::array<Lane, doc::kLanes> lanes_;
  std::int64_t next_step_;
  std::int64_t executed_left_ = 0;
  std::int64_t now_ = 0;  // of the event that is being taken
};

// The interface through which training has the tasks of its steps run.

struct VariantNames;  // runner.hpp

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

  /// Reports an observed task of the current step as done.
  virtual void report(std::uint32_t task) = 0;
  /// Each reports observed tasks. report_backward() reports the backward task of a gradient.
  /// report_factor() reports the task that computes a factor, if this rank has it in this step.
  /// report_before_factor() and report_before_backward() report all tasks that are left before that
  /// factor's, or before the first backward task. report_all() reports all that are left of a kind.
  void report_backward(std::int32_t position);
  void report_factor(std::int32_t factor);
  void report_before_factor(std::int32_t factor);
  void report_before_backward();
  void report_all(doc::TaskKind kind);
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
  /// Of the current step's variant. Throws if there is no step.
  virtual const VariantNames& names() const = 0;
  /// An observed task that this rank has and that is not reported yet.
  virtual bool is_left(std::uint32_t task) const = 0;
  /// Before report() of a task that others may have to come before: waits for these.
  virtual void wait_before(std::uint32_t) {}
  /// Reports the tasks before `end` that are left, each once its predecessors are done.
  void report_left(std::uint32_t end);
  /// Throws on every rank unless the plan is the same on all of them, valid, and for this number of
  /// ranks. Collective.
  static void agree_on(const doc::Plan& plan, comm::Communicator& communicator);
  /// Throws the error of a runner one of whose steps has failed with `failure`.
  [[noreturn]] static void refuse_after(const std::exception_ptr& failure);
};

}  // namespace linerate::exec
