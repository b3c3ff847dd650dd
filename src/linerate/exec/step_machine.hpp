// The core of the runner: which tasks of a Plan one rank may start, given what is done. It has no
// threads, clocks or memory to move: an event goes in, the tasks to start come out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {

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

  const doc::Plan& plan() const { return *plan_; }
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

}  // namespace linerate::exec
