// Enqueues the steps of a Plan on a device. It drives the step machine as a Runner does, but "done"
// means "enqueued".
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/streams/stream_program.hpp"
#include "linerate/exec/streams/stream_times.hpp"

namespace linerate::exec {

/// Counts of all that was enqueued so far, besides the work itself.
struct StreamCounts {
  std::int64_t events = 0;        // recorded
  std::int64_t waits = 0;         // of a stream for an event
  std::int64_t memory_waits = 0;  // among them: waits for memory, without an edge of the Plan
  std::int64_t host_waits = 0;    // of the host for an event
};

/// One step: begin_step(); for each observed task open(), its work, report(). Executed tasks are
/// enqueued meanwhile, each when the machine starts it. The step is enqueued when all observed
/// tasks are reported, and then the next step may begin. Nothing waits for the device except if the
/// host needs values of the device (stream_program.hpp).
///
/// A task's stream waits for these, if they are in another stream.
/// - the ends of its predecessors, in this step and the one before
/// - the compute lane's tasks that stand before such a predecessor in the Plan, in whatever order
///   autograd enqueued them, because the Plan counts on lane order
/// - for a collective: the collective before it in the network's lane, whatever its group
/// - the tasks that used its arrays before it (stream_program.hpp)
///
/// A wait is left out if the task's stream is known to be past that place anyway. Each stream has a
/// vector clock for that (`known_`): for each stream the last place that is over when the next task
/// begins. An entry grows by the stream's own tasks, and by each wait, which brings along all that
/// the other stream was past. Waits of the host count for all streams. A wait is also left out if
/// another wait of the same task implies it.
///
/// An example with three streams. Backward is place 1 of the compute stream. A cast in the codec's
/// stream waits for it, so the cast's event covers compute 1 and codec 1. The bucket's all-reduce
/// comes after both. It needs compute 1 and codec 1, but the wait for the cast implies the wait for
/// backward. So the network's stream waits once, and knows compute 1, codec 1 and network 1
/// afterwards.
///
/// In the Plan's order the waits that are left are the transitive reduction of the order of
/// enqueuing. Without any one of them, some task could begin too early. If autograd has an order of
/// its own, a wait may need a place that has no event. Then an event is recorded at the end of that
/// stream when the wait is enqueued, which is later than needed but correct.
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
  /// Tells that the work of an observed task is enqueued.
  void report(std::uint32_t task);
  /// Runs a whole step in the Plan's order. The work of observed tasks is enqueued like that of the
  /// others.
  void run_step(std::int32_t variant = -1);

  /// For a program that writes payloads by itself before a step, and reads what steps have left.
  /// After fork(), whatever is enqueued in any stream comes after all that is in the compute
  /// stream. After settle(), whatever is enqueued in the compute stream comes after all that is in
  /// the other streams.
  void fork();
  void settle();
  /// After settle(id), whatever is enqueued in the compute stream comes after this task, which is
  /// enqueued and of the last two steps. is_settled() tells whether earlier waits bring that about
  /// already.
  void settle(TaskId id);
  bool is_settled(TaskId id) const;

  const StepMachine& machine() const { return machine_; }
  const StreamCounts& counts() const { return counts_; }
  /// The tasks whose ends were waited for, by exactly an event of theirs.
  const TaskMarks& waited_for() const { return waited_for_; }

 private:
  /// By stream: the last place that is over. Everything before it in the stream is over, too.
  using Places = std::vector<std::int64_t>;

  /// The place of a task in its stream.
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
    /// For tasks of the compute lane: the last place of the task and of all tasks before it in the
    /// lane. Filled up to the first task that is not enqueued.
    std::vector<Place> settled;
    std::size_t lane_next = 0;
  };
  struct Array {
    Place written;
    std::vector<Place> read;  // since then
  };
  /// The events that a task has to wait for in one stream.
  struct Wait {
    Place on;
    bool for_memory = false;
    bool is_exact = false;  // for the event right after the task; else for one recorded now
    Places over;            // all that is over by then
  };

  void settle_all(std::span<const Place> places);
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
  /// Whether another wait of the task implies it. `by_exact`: only waits for an event right after
  /// its task count.
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

// Makes a stream program by a run of the StreamRunner on no device.

/// An event costs a device about a microsecond, so a task gets one only if a stream or the host
/// waits for its end. Which ends are waited for follows from the Plan alone. So this runs the steps
/// once on a device that does nothing, with an event after each task. It keeps the events that were
/// waited for. It runs the schedule, and each variant that is not in the schedule twice.
std::shared_ptr<const StreamProgram> make_stream_program(std::shared_ptr<const doc::Plan> plan,
                                                         std::int32_t rank);

// Records what is enqueued: tasks with the times that a device took for them.

/// Stands between a StreamRunner and its device. It sets a mark before and after the work of each
/// task, in the task's stream. It adds the task to a Recorder as a Runner does. While the Recorder
/// keeps nothing, it only passes calls on. It makes no stream and no host wait.
///
/// The waits of a stream come before the first mark, so a task begins when its stream has come to
/// it. A collective begins there, too, and then waits for the streams of the other ranks. It ends
/// when it is over. If the host is slower than the device, it ends when the host has set the mark.
class StepRecording final : public StreamDevice {
 public:
  /// `device` and `recorder` outlive this object, `recorder` following `times`.
  StepRecording(StreamDevice& device, Recorder& recorder, std::shared_ptr<StreamTimes> times,
                std::shared_ptr<const StreamProgram> program);

  /// Before anything of a step of this variant is enqueued, the waits of StreamRunner::fork()
  /// included.
  void begin_step(std::int32_t variant);
  /// Sets a mark: the work of an observed task is in the compute stream, and other tasks may have
  /// waited for just that. The mark gives those tasks' `ready` time. The event of the observed task
  /// itself is added by whoever observes it.
  void note_end(std::uint32_t task);

  void enqueue(StreamId stream, const StreamWork& work) override;
  void record(EventId event, StreamId stream) override { device_.record(event, stream); }
  void wait(StreamId stream, EventId event) override { device_.wait(stream, event); }
  void host_wait(EventId event) override { device_.host_wait(event); }

 private:
  /// The moments at which tasks ended, -1 for those that have none.
  struct Ends {
    std::int32_t variant = -1;
    std::vector<std::int64_t> of_task;
  };

  std::int64_t ready(const StreamWork& work);

  StreamDevice& device_;
  Recorder& recorder_;
  std::shared_ptr<StreamTimes> times_;
  std::shared_ptr<const StreamProgram> program_;
  std::vector<VariantNames> names_;  // by variant
  bool records_ = false;             // this step
  std::int32_t recorded_as_ = 0;     // the Recorder's number for it
  std::int64_t begin_ = -1;          // of this step
  Ends ends_, ends_before_;          // of this step and the one before
};

}  // namespace linerate::exec
