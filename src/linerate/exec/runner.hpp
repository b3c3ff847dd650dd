// Runs the executed tasks of a Plan over a Communicator: the step machine with threads, clocks and
// memory. Others (autograd, an optimizer) drive observed tasks and report them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
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

// The thread of a lane: runs one task after the other, sleeps in between. Its destructor waits for
// the task that is running, and drops those that have not begun.

class LaneWorker {
 public:
  LaneWorker() : thread_([this](const std::stop_token& stop) { loop(stop); }) {}
  /// `work` throws nothing.
  void post(std::function<void()> work);

 private:
  void loop(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> queue_;
  std::jthread thread_;  // last: it uses the others
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

// The state that a Runner's threads share. Threads that bring events (the communicator's, lane
// workers) meet in runner.cpp. The thread that drives steps is in runner_driver.cpp. Private
// to these two files.
//
// Two locks guard it. `events_mutex` guards the queue of events alone, so that any thread can leave
// an event while another thread takes events. `mutex` guards the step machine and all that follows
// it; whoever needs both takes `mutex` first.

/// A task is done; news for the step machine.
struct RunnerEvent {
  TaskId id;
  std::int64_t start_ns = 0, end_ns = 0;
  bool executed = true;
  comm::WorkPtr work = nullptr;        // of a collective: its times and its error
  std::exception_ptr error = nullptr;  // of an operation
};

/// The data of a step until it is done.
struct OpenStep {
  std::string label;                   // begins its collectives' names
  std::int32_t recorded_as = 0;        // the Recorder's number for it
  std::vector<std::int64_t> ready_ns;  // [tasks] last predecessor done
};

struct Runner::State : std::enable_shared_from_this<Runner::State> {
  State(comm::Communicator& c, Payloads& p, Recorder* r) : whole(c), payloads(p), recorder(r) {}

  comm::Communicator& whole;
  Payloads& payloads;
  Recorder* recorder;
  std::map<std::string, Operation*, std::less<>> operations;
  std::shared_ptr<const doc::Plan> plan;
  std::vector<VariantNames> names;                          // by variant
  std::vector<std::unique_ptr<comm::Communicator>> groups;  // by group; the whole is null
  std::array<std::unique_ptr<LaneWorker>, doc::kLanes> workers;

  std::mutex events_mutex;
  std::deque<RunnerEvent> events;

  mutable std::mutex mutex;  // of everything below
  std::condition_variable changed;
  std::list<std::function<bool()>> awaited;  // by each thread asleep
  std::atomic<std::thread::id> pumping{};    // who holds the mutex and is taking events
  std::optional<StepMachine> machine;
  std::map<std::int64_t, OpenStep> open;
  std::deque<TaskId> compute;  // started in the compute lane, not yet run
  int in_flight = 0;           // executed tasks under way
  int collectives = 0;         // among them
  std::int64_t step = -1;
  const doc::TaskGraph* current = nullptr;  // the variant of `step`
  bool in_step = false, closed = false;
  bool others_wait = false;
  std::exception_ptr failure;
  Moves moves;

  // Setting up
  void check_executable(const doc::TaskGraph& graph, const doc::Task& task) const;
  bool is_wait(const doc::Task& task) const;
  void make_groups();
  void start_workers();

  // Events, in any thread
  void post(RunnerEvent event);
  void pump();
  void handle(const RunnerEvent& event);
  void dispatch();
  void submit(TaskId id);
  void record(const RunnerEvent& event);
  void execute(TaskId id);

  // The driver's thread
  std::int64_t beginning_ns() const;
  void begin(std::int32_t variant, const std::string& name);
  void report(std::uint32_t task, std::int64_t end_ns);
  void run_compute(std::unique_lock<std::mutex>& lock);
  /// Sleeps until this holds. Events wake the thread for this condition alone, because most events
  /// have nothing for it.
  void sleep_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds);
  template <typename Over>
  void run_until(std::unique_lock<std::mutex>& lock, Over&& over);
  void check_usable() const;
  const doc::TaskGraph& graph() const { return *current; }
};

}  // namespace linerate::exec
