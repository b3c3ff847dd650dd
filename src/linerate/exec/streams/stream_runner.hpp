// Enqueues the steps of a Plan on a device: the step machine, where "done" is "enqueued".
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/streams/host_read.hpp"
#include "linerate/exec/streams/stream_device.hpp"
#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::exec {

/// What was enqueued so far, besides the work itself.
struct StreamCounts {
  std::int64_t events = 0;        // recorded
  std::int64_t waits = 0;         // of a stream for an event
  std::int64_t memory_waits = 0;  // among them: those that no edge of the Plan asks for
  std::int64_t host_waits = 0;    // of the host for an event
};

/// One step: begin_step(); for each observed task open(), its work, report(). Executed tasks are
/// enqueued meanwhile, each when the machine starts it; the step is enqueued when all observed
/// tasks are reported, and the next one may begin. Nothing waits for the device except where values
/// come back to the host (host_read.hpp).
///
/// A task's stream waits for the ends of its predecessors in other streams, in this step and the
/// one before, and of what comes before those in the compute lane, in whatever order autograd
/// enqueued them: the Plan counts on that. A collective also waits for the one before it in the
/// network's lane, whatever its group; and each task for those that used its arrays. Left out is
/// what the stream knows to be over, from its own order, earlier waits and those of the streams
/// that it waited for, and what the host knew when it enqueued the task; and what another wait of
/// the same task implies. In the Plan's order what is left is the transitive reduction of the order
/// of enqueuing: without any one of its waits, some task could begin too early. In an order of
/// autograd's own an event may be recorded when it is needed, later than right after its task.
///
/// Thread safety: one thread drives it.
class StreamRunner {
 public:
  /// `device` outlives the runner.
  StreamRunner(std::shared_ptr<const StreamProgram> program, StreamDevice& device);

  /// Begins the step that the schedule names, or one of this variant. Returns its number.
  std::int64_t begin_step(std::int32_t variant = -1);
  /// Whether everything that an observed task of this step waits for is enqueued.
  bool can_open(std::uint32_t task) const { return machine_.gate({step_, task}); }
  /// The compute stream waits for what the task waits for; before its work is enqueued there.
  void open(std::uint32_t task);
  /// The work of an observed task is enqueued.
  void report(std::uint32_t task);
  /// A whole step, the work of observed tasks being enqueued as the others' in the Plan's order.
  void run_step(std::int32_t variant = -1);

  /// For a program that writes payloads by itself before a step, and takes what steps have left:
  /// what is enqueued from now on, in whatever stream, comes after all that is in the compute
  /// stream; what is enqueued in the compute stream, after all that is in the others.
  void fork();
  void settle();
  /// What is enqueued in the compute stream comes after this task, which is enqueued and of the
  /// last two steps; whether it does by what the stream waits for already.
  void settle(TaskId id);
  bool is_settled(TaskId id) const;

  const StepMachine& machine() const { return machine_; }
  const StreamCounts& counts() const { return counts_; }
  /// The tasks for whose ends, just those, somebody waited.
  const TaskMarks& waited_for() const { return waited_for_; }

 private:
  /// By stream: a place before which everything in it is over.
  using Places = std::vector<std::int64_t>;

  /// Where a task is.
  struct Place {
    StreamId stream = -1;
    std::int64_t place = 0;  // its stream's first task is at 1; 0: not enqueued
    TaskId id;
    std::int32_t variant = 0;  // of its step
    EventId event = -1;        // recorded right after it; -1: none
  };
  struct StepPlaces {
    std::int64_t number = 0;
    std::int32_t variant = 0;
    std::vector<Place> tasks;
    /// Of those of the compute lane up to the first that is not enqueued: the last place of it and
    /// of all before it in the lane.
    std::vector<Place> settled;
    std::size_t lane_next = 0;
  };
  struct Array {
    Place written;
    std::vector<Place> read;  // since then
  };
  /// What a task has to wait for in one stream.
  struct Wait {
    Place on;
    bool for_memory = false;
    bool is_exact = false;  // for the event right after it; else for one recorded now
    Places over;            // all that is over by then
  };

  void close_steps();
  void take(const Moves& moves);
  void enqueue(TaskId id);
  void add(TaskId id);

  void wait_before(TaskId id);
  void begin_waits(StreamId stream);
  void enqueue_waits(StreamId stream);
  void need_predecessors(TaskId id, StreamId stream);
  void need_memory(TaskId id, StreamId stream);
  void need_task(const StepPlaces& step, std::uint32_t task, StreamId stream);
  void need(const Place& on, StreamId stream, bool for_memory);
  void complete(Wait& wait) const;
  /// By another wait of the task; `by_exact`: by one for an event right after its task.
  bool is_implied(const Wait& wait, bool by_exact) const;
  EventId event_of(const Wait& wait);
  void wait(StreamId stream, const Wait& wait);
  void let_host_wait(const Place& on);
  void let_host_read_counts(TaskId id);

  const Place& place_of(TaskId id) const;
  EventId record(StreamId stream);
  void settle_compute_lane();
  void use_memory(const Place& by);
  bool is_recent(const Place& place) const { return place.id.step >= step_ - 1; }
  StreamId stream_of(TaskId id) const { return program_->lanes.of(graph().tasks[id.task]); }
  HostRead host_read_of(TaskId id) const;
  const doc::TaskGraph& graph() const {
    return program_->plan->variants[to_index(steps_.back().variant)];
  }

  std::shared_ptr<const StreamProgram> program_;
  StreamDevice& device_;
  StepMachine machine_;
  std::int64_t step_ = -1;        // begun last
  std::deque<StepPlaces> steps_;  // this one and the one before
  std::vector<Places> known_;     // by stream: what is over when its next task begins
  std::vector<Place> last_;       // by stream
  Places known_by_host_;
  std::vector<Places> over_at_;  // by event
  std::vector<EventId> free_;
  std::vector<Array> arrays_;
  Place last_collective_;
  std::vector<Wait> waits_;  // of the task that is being enqueued, by stream; place 0: none
  TaskMarks waited_for_;
  StreamCounts counts_;
};

}  // namespace linerate::exec
