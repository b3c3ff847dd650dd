// Tasks that are done, from whichever thread ran them, and the tasks that they start.
//
// Each event goes through post() and pump(). A thread that ends a task leaves an event in the queue
// and then takes events, one by one, under the runner's mutex. It tells the step machine and starts
// what may start. Whoever holds the mutex takes the events of all threads.
//
// An example with three threads. The communicator's thread ends `all-reduce 1` and pumps. Meanwhile
// the codec's worker ends a cast, posts it, and waits for the mutex. The first thread finds both
// events and starts what both allow. The worker then gets the mutex, finds an empty queue and goes
// back to its lane.
#include "linerate/exec/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {

using doc::Origin;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

/// The thread of a lane: runs one task after the other, sleeps in between. Its destructor waits for
/// the task that is running, and drops those that have not begun.
class LaneWorker {
 public:
  LaneWorker() : thread_([this](const std::stop_token& stop) { loop(stop); }) {}
  /// `work` throws nothing.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [this] { return !queue_.empty(); }) && !stop.stop_requested()) {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> queue_;
  std::jthread thread_;  // last: it uses the others
};

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

// The state that a Runner's threads share: threads that bring events (the communicator's, lane
// workers) and the thread that drives steps.
//
// Two locks guard it. `events_mutex` guards the queue of events alone, so that any thread can leave
// an event while another thread takes events. `mutex` guards the step machine and all that follows
// it; whoever needs both takes `mutex` first.

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

  /// Throws UsageError for a task that nothing here can execute.
  void check_executable(const TaskGraph& graph, const Task& task) const {
    if (is_communication(task.kind)) {
      check_collective(*plan, task);
      return;
    }
    const std::string_view name = plan->operation_name(task);
    if (is_wait(task) || operations.find(name) != operations.end()) return;
    throw UsageError(fmt::format(
        "plan \"{}\", variant \"{}\": nothing here can execute \"{}\" (operation \"{}\"); give the "
        "runner an operation of that name or choose another strategy",
        plan->strategy, graph.name, title_of(*plan, graph, task), name));
  }

  bool is_wait(const Task& task) const {
    return is_timer(*plan, task) ||
           (others_wait && operations.find(plan->operation_name(task)) == operations.end());
  }

  /// Makes only groups that send something: owners of inverses have dozens of groups of one rank.
  void make_groups() {
    groups.clear();
    groups.resize(plan->groups.size());
    std::vector<bool> sends(plan->groups.size(), false);
    for (const TaskGraph& graph : plan->variants)
      for (const Task& task : graph.tasks)
        if (doc::is_communication(task.kind)) sends[to_index(task.group)] = true;
    for (std::size_t g = 1; g < plan->groups.size(); ++g) {
      if (!sends[g]) continue;
      const doc::Group& group = plan->groups[g];
      const std::int32_t part = group.part_of(whole.rank());
      int position = 0;
      if (part >= 0) {
        const auto& ranks = group.parts[to_index(part)];
        position =
            static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank()) - ranks.begin());
      }
      groups[g] = whole.split(part >= 0 ? part : comm::kNoGroup, position, group.name);
    }
  }

  /// Starts a worker for each lane that needs one.
  void start_workers() {
    std::array<bool, doc::kLanes> wanted{};
    for (const TaskGraph& graph : plan->variants)
      for (const Task& task : graph.tasks)
        if (task.origin == Origin::executed) wanted[to_index(task.resource)] = true;
    for (const Resource lane : {Resource::codec, Resource::host}) {
      auto& worker = workers[to_index(lane)];
      if (!wanted[to_index(lane)])
        worker.reset();
      else if (!worker)
        worker = std::make_unique<LaneWorker>();
    }
  }

  // Events, in any thread

  /// From any thread. A collective may be done while it is submitted, on the thread that is inside
  /// pump(). That thread holds the mutex already, so it only queues the event; its loop in pump()
  /// takes it next.
  void post(RunnerEvent event) {
    {
      const std::lock_guard lock(events_mutex);
      events.push_back(std::move(event));
    }
    if (pumping.load() != std::this_thread::get_id()) pump();
  }

  void pump();

  /// Takes an event. The first exception of a step is kept and ends the runner's use. Later events
  /// of a failed step only count down what is in flight.
  void handle(const RunnerEvent& event) {
    try {
      if (event.executed) {
        --in_flight;
        if (event.work) --collectives;
        if (event.error) std::rethrow_exception(event.error);
        if (event.work) event.work->wait();  // throws what the collective failed with
        if (failure) return;
        record(event);
      }
      moves.clear();
      machine->done(event.id, moves, event.end_ns);
      dispatch();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }

  /// Starts the tasks that may start, in the machine's order. All ranks submit their collectives in
  /// this order, which is the Plan's.
  void dispatch() {
    if (recorder)
      for (const TaskId& id : moves.ready)
        open.at(id.step).ready_ns[id.task] = machine->ready_at(id);
    for (const TaskId& id : moves.start) {
      const Task& task = machine->task(id);
      if (task.origin == Origin::observed) continue;
      if (is_communication(task.kind)) {
        submit(id);
      } else if (task.resource == Resource::compute) {
        compute.push_back(id);
      } else {
        ++in_flight;
        workers[to_index(task.resource)]->post(
            [self = shared_from_this(), id] { self->execute(id); });
      }
    }
  }

  /// The callback holds the runner's state and the payloads' memory, since a collective may outlive
  /// both the step and the runner.
  void submit(TaskId id) {
    const Task& task = machine->task(id);
    const auto variant = to_index(machine->variant(id.step));
    comm::Communicator& group = task.group == doc::kWhole ? whole : *groups[to_index(task.group)];
    const TaskGraph& in = machine->graph(id.step);
    const std::string& title = names[variant].titles[id.task];
    const std::string& label = open.at(id.step).label;
    const comm::WorkPtr work = submit_collective(*plan, in, task, group, payloads,
                                                 label.empty() ? title : label + ": " + title);
    ++in_flight;
    ++collectives;
    work->on_done([self = shared_from_this(), id, work, first = payloads.hold(in, task.first),
                   last = payloads.hold(in, task.last)] {
      const comm::WorkTimes times = work->times();
      self->post({.id = id, .start_ns = times.start_ns, .end_ns = times.end_ns, .work = work});
    });
  }

  void record(const RunnerEvent& event) {
    if (!recorder) return;
    const Task& task = machine->task(event.id);
    if (is_wait(task) && event.end_ns == event.start_ns) return;  // nothing took place
    const VariantNames& v = names[to_index(machine->variant(event.id.step))];
    const OpenStep& step_of_task = open.at(event.id.step);
    recorder->add(v.event_of(event.id.task, step_of_task.ready_ns[event.id.task], event.start_ns,
                             event.end_ns),
                  step_of_task.recorded_as);
  }

  /// Runs an operation on this thread, or waits until an emulated one is due, and reports it.
  ///
  /// The due time follows from when the task could start, not from when this thread woke up. For
  /// example two emulated tasks of 2 ms follow each other from 10 ms on. The first is due at 12 ms.
  /// Its thread wakes at 12.2 ms and reports 12 ms as the end. So the second is due at 14 ms, and
  /// late wake-ups do not add up.
  void execute(TaskId id) {
    const Task* task = nullptr;
    const TaskGraph* in = nullptr;
    std::int64_t could_start_ns = 0;
    {
      const std::lock_guard lock(mutex);
      if (closed || failure) return;
      task = &machine->task(id);
      in = &machine->graph(id.step);
      could_start_ns = machine->could_start_at(id);
    }
    if (is_wait(*task)) {
      const std::int64_t due_ns = could_start_ns + doc::nanoseconds(task->seconds);
      sleep_until_ns(due_ns);
      post({.id = id, .start_ns = could_start_ns, .end_ns = due_ns});
      return;
    }
    RunnerEvent event{.id = id, .start_ns = steady_ns()};
    try {
      operations.find(plan->operation_name(*task))->second->run(*in, *task);
    } catch (...) {
      event.error = std::current_exception();
    }
    event.end_ns = steady_ns();
    post(std::move(event));
  }

  // The driver's thread

  /// When the step that is about to begin begins. If computation is emulated, a step begins when
  /// the emulated device is free and not when this thread comes here. Then the seconds that this
  /// thread loses between two steps do not slow the rehearsed job.
  std::int64_t beginning_ns() const {
    const std::int64_t free_at = machine->free_at(Resource::compute);
    return others_wait && free_at > 0 ? free_at : steady_ns();
  }

  void begin(std::int32_t variant, const std::string& name) {
    std::unique_lock lock(mutex);
    check_usable();
    LINERATE_CHECK(machine.has_value(), "a step without a plan");
    LINERATE_CHECK(!in_step, "a step begun inside a step");
    in_step = true;
    std::erase_if(open, [&](const auto& entry) { return !machine->is_open(entry.first); });
    moves.clear();
    if (variant < 0) variant = plan->variant_index_of_step(machine->next_step());
    current = &plan->variants[to_index(variant)];
    open[machine->next_step()] = {name, recorder ? recorder->step() : 0,
                                  std::vector<std::int64_t>(current->tasks.size(), -1)};
    step = machine->begin_step(variant, moves, beginning_ns());
    pumping = std::this_thread::get_id();
    try {
      // Like pump(): a collective may end inside its submission, so `pumping` makes post() leave
      // the event for pump() below.
      dispatch();
    } catch (...) {
      failure = std::current_exception();
    }
    pumping = std::thread::id();
    lock.unlock();
    pump();
    lock.lock();
    run_compute(lock);
  }

  void report(std::uint32_t task, std::int64_t end_ns) {
    post({.id = {step, task}, .end_ns = end_ns, .executed = false});
    std::unique_lock lock(mutex);
    run_compute(lock);
  }

  /// Runs what stands in the compute lane on this thread; returns with the lock held.
  void run_compute(std::unique_lock<std::mutex>& lock) {
    while (!compute.empty() && !failure) {
      const TaskId id = compute.front();
      compute.pop_front();
      ++in_flight;
      lock.unlock();
      execute(id);
      lock.lock();
    }
    if (failure) std::rethrow_exception(failure);
  }

  /// Sleeps until this holds. Events wake the thread for this condition alone, because most events
  /// have nothing for it.
  void sleep_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds) {
    const auto own = awaited.insert(awaited.end(), holds);
    changed.wait(lock, holds);
    awaited.erase(own);
  }

  /// Runs the compute lane until `over` holds. A step whose observed tasks were not all reported
  /// can get stuck. Then nothing is in flight and nothing stands in the compute lane, so this
  /// throws and names the first task that cannot run.
  template <typename Over>
  void run_until(std::unique_lock<std::mutex>& lock, Over&& over) {
    while (true) {
      run_compute(lock);
      if (over()) return;
      if (in_flight == 0 && compute.empty()) {
        const TaskId id = machine->first_left();
        throw InternalError(
            fmt::format("{} cannot run: what it waits for was never reported",
                        title_of(*plan, machine->graph(id.step), machine->task(id))));
      }
      sleep_until(lock, [&] { return failure || !compute.empty() || in_flight == 0 || over(); });
    }
  }

  void check_usable() const {
    if (failure) refuse_after(failure);
  }

  const TaskGraph& graph() const { return *current; }
};

/// Wakes sleeping threads only if the condition of one of them holds now. A step of a large model
/// has hundreds of events, and a thread that wakes for each would take the processor from the
/// collectives.
void Runner::State::pump() {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex);
    pumping = std::this_thread::get_id();
    while (true) {
      std::optional<RunnerEvent> next;
      {
        const std::lock_guard taking(events_mutex);
        if (!events.empty()) next = std::move(events.front()), events.pop_front();
      }
      if (!next) break;
      if (!closed) handle(*next);
    }
    pumping = std::thread::id();
    wakes = std::any_of(awaited.begin(), awaited.end(), [](const auto& holds) { return holds(); });
  }
  if (wakes) changed.notify_all();
}

// What the one thread that drives the steps of a Runner calls. The driver's thread is also the
// compute lane. It never just sleeps: each function that waits runs the tasks that stand in the
// compute lane first, and again whenever an event adds one. So a task that unpacks a bucket runs on
// the thread that waits for the bucket.

Runner::Runner(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder)
    : state_(std::make_shared<State>(communicator, payloads, recorder)) {}

/// Collectives that are still in flight keep the State alive and report to nobody. If an exception
/// unwinds, the other ranks hear of it now, because this rank will not finish the step. Workers and
/// groups are destroyed on this thread. Else one of their own threads might be the last to release
/// the state, and a thread cannot join itself.
Runner::~Runner() {
  bool under_way = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    under_way = state_->collectives > 0;
  }
  if (under_way && std::uncaught_exceptions() > unwinding_)
    state_->whole.abort("an exception was thrown while the collectives of a step were under way");
  for (auto& worker : state_->workers) worker.reset();
  state_->groups.clear();
}

void Runner::set_operation(const std::string& name, Operation& operation) {
  state_->operations[name] = &operation;
}

void Runner::let_other_operations_wait() { state_->others_wait = true; }

void Runner::set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step) {
  State& s = *state_;
  LINERATE_CHECK(!s.in_step, "a plan replaced inside a step");
  s.plan = std::move(plan);
  agree_on(*s.plan, s.whole);
  for (const TaskGraph& graph : s.plan->variants)
    for (const Task& task : graph.tasks)
      if (task.origin == Origin::executed) s.check_executable(graph, task);
  s.make_groups();
  s.names.clear();
  for (const TaskGraph& graph : s.plan->variants) s.names.emplace_back(*s.plan, graph, s.recorder);
  s.start_workers();
  const std::lock_guard lock(s.mutex);
  s.machine.emplace(s.plan, s.whole.rank(), first_step);
  s.current = nullptr;
  s.open.clear();
  s.step = -1;
}

void Runner::begin_step(const std::string& label) { state_->begin(-1, label); }

void Runner::begin_variant(std::string_view variant, const std::string& label) {
  const std::int32_t index = state_->plan->variant_index(variant);
  if (index < 0)
    throw UsageError(
        fmt::format("plan \"{}\" has no variant \"{}\"", state_->plan->strategy, variant));
  state_->begin(index, label);
}

const VariantNames& Runner::names() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.check_usable();
  LINERATE_CHECK(s.in_step, "a gradient or factor outside a step");
  return s.names[to_index(s.machine->variant(s.step))];
}

void Runner::record_factor(std::int32_t factor, std::int64_t start_ns, std::int64_t end_ns) {
  const std::uint32_t task = names().factor_of[to_index(factor)];
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (task != kNoTask) s.record({.id = {s.step, task}, .start_ns = start_ns, .end_ns = end_ns});
}

void Runner::report(std::uint32_t task) { state_->report(task, steady_ns()); }
void Runner::report(std::uint32_t task, std::int64_t end_ns) { state_->report(task, end_ns); }

bool Runner::is_left(std::uint32_t task) const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.graph().tasks[task].origin != Origin::observed || s.machine->is_done({s.step, task}))
    return false;
  return s.machine->index(s.machine->variant(s.step)).has[task];
}

void StepRunner::report_backward(std::int32_t position) {
  const std::uint32_t task = names().backward_of[to_index(position)];
  LINERATE_CHECK(task != kNoTask, fmt::format("no backward task for gradient {}", position));
  report(task);
}

void StepRunner::report_factor(std::int32_t factor) {
  const std::uint32_t task = names().factor_of[to_index(factor)];
  if (task != kNoTask && is_left(task)) report(task);
}

void StepRunner::report_left(std::uint32_t end) {
  for (std::uint32_t i = 0; i < end; ++i) {
    if (!is_left(i)) continue;
    wait_before(i);
    report(i);
  }
}

/// Reports the observed tasks before a factor's, up to the first factor that is not there yet. A
/// layer may come later than the plan has it: forward may come to it after a layer that was
/// registered later.
void StepRunner::report_before_factor(std::int32_t factor) {
  const std::uint32_t task = names().factor_of[to_index(factor)];
  if (task == kNoTask) return;
  const std::vector<Task>& tasks = graph().tasks;
  std::uint32_t end = 0;
  while (end < task && !(tasks[end].kind == TaskKind::factor && is_left(end))) ++end;
  report_left(end);
}

void StepRunner::report_before_backward() {
  const std::vector<Task>& tasks = graph().tasks;
  const auto first = std::find_if(tasks.begin(), tasks.end(),
                                  [](const Task& task) { return task.kind == TaskKind::backward; });
  report_left(static_cast<std::uint32_t>(first - tasks.begin()));
}

void StepRunner::report_all(TaskKind kind) {
  const std::vector<Task>& tasks = graph().tasks;
  for (std::uint32_t i = 0; i < tasks.size(); ++i)
    if (tasks[i].kind == kind && is_left(i)) report(i);
}

/// The compute lane may hold executed tasks before this one, so they run here first.
std::int64_t Runner::gate(std::uint32_t task) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const TaskId id{s.step, task};
  s.run_until(lock, [&] { return !s.machine->is_open(s.step) || s.machine->gate(id); });
  if (!s.machine->is_open(s.step)) return s.machine->free_at(Resource::compute);
  return s.machine->could_start_at(id);
}

/// The compute lane of this step is done; collectives and codecs of the step may still be in
/// flight. The Plan has edges from them into the next step, which begin_step() counts.
std::int64_t Runner::end_step() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.check_usable();
  LINERATE_CHECK(s.in_step, "the end of a step that has not begun");
  s.run_until(lock, [&s] { return s.machine->has_executed(s.step, Resource::compute); });
  s.in_step = false;
  return s.machine->free_at(Resource::compute);
}

void Runner::drain() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.check_usable();
  s.run_until(lock, [&s] { return s.machine->executed_left() == 0; });
  s.in_step = false;
}

void Runner::wait_for(TaskId id) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.check_usable();
  s.run_until(lock, [&] { return s.machine->is_done(id); });
}

bool Runner::is_done(TaskId id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->machine->is_done(id);
}

void Runner::wait_idle() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (s.in_flight > 0 || !s.compute.empty()) {
    s.run_compute(lock);
    s.sleep_until(lock, [&] { return s.failure || s.in_flight == 0 || !s.compute.empty(); });
  }
}

TaskId Runner::current(std::uint32_t task) const {
  const std::lock_guard lock(state_->mutex);
  return {state_->step, task};
}

bool Runner::in_step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_step;
}
const TaskGraph& Runner::graph() const { return state_->graph(); }

void add_parameters(std::vector<std::string>& names, const doc::Plan& plan,
                    const doc::TaskGraph& graph, const doc::Task& task) {
  for (const std::int32_t p : gradients_of(plan, graph, task))
    names.push_back(plan.gradient_names[to_index(p)]);
}

VariantNames::VariantNames(const doc::Plan& plan, const doc::TaskGraph& graph, Recorder* recorder)
    : titles(graph.tasks.size()),
      backward_of(plan.gradient_names.size(), kNoTask),
      factor_of(2 * plan.blocks.size(), kNoTask) {
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    const doc::Task& task = graph.tasks[i];
    if (task.kind == doc::TaskKind::backward && task.subject == doc::Subject::gradients)
      for (std::int32_t p = task.first; p <= task.last; ++p) backward_of[to_index(p)] = i;
    if (task.kind == doc::TaskKind::factor)
      for (std::int32_t f = task.first; f <= task.last; ++f) factor_of[to_index(f)] = i;
    const bool executed = task.origin == doc::Origin::executed;
    if (executed) titles[i] = title_of(plan, graph, task);
    if (!recorder) continue;
    doc::Event& event = events.emplace_back();
    event.kind = task.kind, event.resource = task.resource, event.bytes = task.bytes;
    if (!executed && task.kind != doc::TaskKind::factor) continue;  // its observer records it
    event.name = recorder->name_id(event_name_of(plan, graph, task));
    std::vector<std::string> parameters;
    add_parameters(parameters, plan, graph, task);
    if (!parameters.empty()) event.set = recorder->set_id(parameters);
  }
}

doc::Event VariantNames::event_of(std::uint32_t task, std::int64_t ready_ns, std::int64_t start_ns,
                                  std::int64_t end_ns) const {
  doc::Event event = events[task];
  event.ready_ns = ready_ns, event.start_ns = start_ns, event.end_ns = end_ns;
  return event;
}

}  // namespace linerate::exec
