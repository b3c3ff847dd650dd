// The state that a Runner's threads share. Threads that bring events (the communicator's, lane
// workers) meet in runner_events.cpp. The thread that drives steps is in runner_driver.cpp. Private
// to these two files.
//
// Two locks guard it. `events_mutex` guards the queue of events alone, so that any thread can leave
// an event while another thread takes events. `mutex` guards the step machine and all that follows
// it; whoever needs both takes `mutex` first.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/exec/lane_worker.hpp"
#include "linerate/exec/runner.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/variant_names.hpp"

namespace linerate::exec {

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
  bool is_left(std::uint32_t task) const;
  const VariantNames& current_names() const;
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
