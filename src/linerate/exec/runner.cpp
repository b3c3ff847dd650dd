#include "linerate/exec/runner.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/collective.hpp"
#include "linerate/exec/lane_worker.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/exec/variant_names.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

/// A task is done; news for the step machine.
struct Event {
  TaskId id;
  std::int64_t start_ns = 0, end_ns = 0;
  bool executed = true;
  comm::WorkPtr work = nullptr;        // of a collective: its times and its error
  std::exception_ptr error = nullptr;  // of an operation
};

/// What is kept of a step until all of it is done.
struct OpenStep {
  std::string label;                   // in front of its collectives' names
  std::int32_t recorded_as = 0;        // the Recorder's number for it
  std::vector<std::int64_t> ready_ns;  // [tasks] last predecessor done
};

}  // namespace

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
  std::deque<Event> events;

  mutable std::mutex mutex;  // of everything below
  std::condition_variable changed;
  std::atomic<std::thread::id> pumping{};  // who holds the mutex and is taking events
  std::optional<StepMachine> machine;
  std::map<std::int64_t, OpenStep> open;
  std::deque<TaskId> compute;  // started in the compute lane, not yet run
  int in_flight = 0;           // executed tasks under way
  int collectives = 0;         // among them
  std::int64_t step = -1;
  const TaskGraph* current = nullptr;  // the variant of `step`
  bool in_step = false, closed = false;
  bool others_wait = false;
  std::exception_ptr failure;
  Moves moves;

  // Setting up
  void check_executable(const TaskGraph& graph, const Task& task) const;
  bool is_wait(const Task& task) const;
  void make_groups();
  void start_workers();

  // Events, in any thread
  void post(Event event);
  void pump();
  void handle(const Event& event);
  void dispatch();
  void submit(TaskId id);
  void record(const Event& event);
  void execute(TaskId id);

  // The driver's thread
  std::int64_t beginning_ns() const;
  void begin(std::int32_t variant, const std::string& name);
  void report(std::uint32_t task, std::int64_t end_ns);
  void run_compute(std::unique_lock<std::mutex>& lock);
  template <typename Over>
  void run_until(std::unique_lock<std::mutex>& lock, Over&& over);
  void check_usable() const;
  const TaskGraph& graph() const { return *current; }
};

Runner::Runner(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder)
    : state_(std::make_shared<State>(communicator, payloads, recorder)) {}

/// Collectives still under way report to nobody; they hold what they use. Where an exception
/// unwinds, the other ranks hear of it now: this one will not finish the step. Workers and groups
/// go here, on this thread: the last to hold the state may be one of theirs.
Runner::~Runner() {
  bool under_way = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    under_way = state_->collectives > 0;
  }
  if (under_way && std::uncaught_exceptions() > unwinding_)
    state_->whole.abort("an exception passed by a step with collectives under way");
  for (auto& worker : state_->workers) worker.reset();
  state_->groups.clear();
}

void Runner::set_operation(const std::string& name, Operation& operation) {
  state_->operations[name] = &operation;
}

void Runner::let_other_operations_wait() { state_->others_wait = true; }

void Runner::State::check_executable(const TaskGraph& graph, const Task& task) const {
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

bool Runner::State::is_wait(const Task& task) const {
  return is_timer(*plan, task) ||
         (others_wait && operations.find(plan->operation_name(task)) == operations.end());
}

void Runner::State::make_groups() {
  groups.clear();
  groups.resize(plan->groups.size());
  for (std::size_t g = 1; g < plan->groups.size(); ++g) {
    const doc::Group& group = plan->groups[g];
    const std::int32_t part = group.part_of(whole.rank());
    int position = 0;
    if (part >= 0) {
      const auto& ranks = group.parts[static_cast<std::size_t>(part)];
      position =
          static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank()) - ranks.begin());
    }
    groups[g] = whole.split(part >= 0 ? part : comm::kNoGroup, position, group.name);
  }
}

/// A worker where the Plan asks for one.
void Runner::State::start_workers() {
  for (const Resource lane : {Resource::codec, Resource::host}) {
    const auto asks = [&](const Task& t) {
      return t.resource == lane && t.origin == Origin::executed;
    };
    const bool wanted =
        std::any_of(plan->variants.begin(), plan->variants.end(), [&](const TaskGraph& graph) {
          return std::any_of(graph.tasks.begin(), graph.tasks.end(), asks);
        });
    auto& worker = workers[static_cast<std::size_t>(lane)];
    if (wanted && !worker) worker = std::make_unique<LaneWorker>();
    if (!wanted) worker.reset();
  }
}

void Runner::set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step) {
  State& s = *state_;
  LINERATE_CHECK(!s.in_step, "a plan replaced inside a step");
  s.plan = std::move(plan);
  comm::require_same(
      s.whole, "plan",
      {fmt::format("strategy {} for {} ranks, {} gradients, hash {:016x}", s.plan->strategy,
                   s.plan->ranks, s.plan->gradient_names.size(), s.plan->hash())});
  // From here on the plan is the same everywhere, so what is thrown is thrown on every rank.
  if (s.plan->ranks != s.whole.size())
    throw UsageError(
        fmt::format("plan \"{}\" is for {} ranks, the communicator has {}; plan again for {} ranks",
                    s.plan->strategy, s.plan->ranks, s.whole.size(), s.whole.size()));
  validate(*s.plan);
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

/// From any thread, also from inside pump(): a collective may be done when it is submitted.
void Runner::State::post(Event event) {
  {
    const std::lock_guard lock(events_mutex);
    events.push_back(std::move(event));
  }
  if (pumping.load() != std::this_thread::get_id()) pump();
}

void Runner::State::pump() {
  {
    const std::lock_guard lock(mutex);
    pumping = std::this_thread::get_id();
    while (true) {
      std::optional<Event> next;
      {
        const std::lock_guard taking(events_mutex);
        if (!events.empty()) next = std::move(events.front()), events.pop_front();
      }
      if (!next) break;
      if (!closed) handle(*next);
    }
    pumping = std::thread::id();
  }
  changed.notify_all();
}

void Runner::State::handle(const Event& event) {
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

/// Starts what may start, in the order in which the machine says it.
void Runner::State::dispatch() {
  if (recorder)
    for (const TaskId& id : moves.ready) open.at(id.step).ready_ns[id.task] = machine->ready_at(id);
  for (const TaskId& id : moves.start) {
    const Task& task = machine->task(id);
    if (task.origin == Origin::observed) continue;
    if (is_communication(task.kind)) {
      submit(id);
    } else if (task.resource == Resource::compute) {
      compute.push_back(id);
    } else {
      ++in_flight;
      workers[static_cast<std::size_t>(task.resource)]->post(
          [self = shared_from_this(), id] { self->execute(id); });
    }
  }
}

void Runner::State::submit(TaskId id) {
  const Task& task = machine->task(id);
  const auto variant = static_cast<std::size_t>(machine->variant(id.step));
  comm::Communicator& group =
      task.group == doc::kWhole ? whole : *groups[static_cast<std::size_t>(task.group)];
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

void Runner::State::record(const Event& event) {
  if (!recorder) return;
  const Task& task = machine->task(event.id);
  if (is_wait(task) && event.end_ns == event.start_ns) return;  // nothing took place
  const VariantNames& v = names[static_cast<std::size_t>(machine->variant(event.id.step))];
  const OpenStep& step_of_task = open.at(event.id.step);
  recorder->add({.kind = task.kind,
                 .resource = task.resource,
                 .name = v.names[event.id.task],
                 .set = v.sets[event.id.task],
                 .ready_ns = step_of_task.ready_ns[event.id.task],
                 .start_ns = event.start_ns,
                 .end_ns = event.end_ns,
                 .bytes = task.bytes},
                step_of_task.recorded_as);
}

/// Runs an operation on this thread, or waits until one that is but a wait is due, and reports it.
/// What is due follows from when the task could start, not from when this thread woke up: late
/// wake-ups do not add up.
void Runner::State::execute(TaskId id) {
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
  Event event{.id = id, .start_ns = steady_ns()};
  try {
    operations.find(plan->operation_name(*task))->second->run(*in, *task);
  } catch (...) {
    event.error = std::current_exception();
  }
  event.end_ns = steady_ns();
  post(std::move(event));
}

/// Runs what stands in the compute lane, here; leaves with the lock held.
void Runner::State::run_compute(std::unique_lock<std::mutex>& lock) {
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

void Runner::State::check_usable() const {
  if (!failure) return;
  std::string what = "an exception that is no std::exception";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  throw CommError(
      fmt::format("an earlier step failed ({}); its gradients are not usable and no further step "
                  "can run",
                  what));
}

/// Where computation is emulated, steps follow each other as the emulated device runs them.
std::int64_t Runner::State::beginning_ns() const {
  const std::int64_t free_at = machine->free_at(Resource::compute);
  return others_wait && free_at > 0 ? free_at : steady_ns();
}

void Runner::State::begin(std::int32_t variant, const std::string& name) {
  std::unique_lock lock(mutex);
  check_usable();
  LINERATE_CHECK(machine.has_value(), "a step without a plan");
  LINERATE_CHECK(!in_step, "a step begun inside a step");
  in_step = true;
  std::erase_if(open, [&](const auto& entry) { return !machine->is_open(entry.first); });
  moves.clear();
  if (variant < 0) variant = plan->variant_index_of_step(machine->next_step());
  current = &plan->variants[static_cast<std::size_t>(variant)];
  open[machine->next_step()] = {name, recorder ? recorder->step() : 0,
                                std::vector<std::int64_t>(current->tasks.size(), -1)};
  step = machine->begin_step(variant, moves, beginning_ns());
  pumping = std::this_thread::get_id();
  try {
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

void Runner::begin_step(const std::string& label) { state_->begin(-1, label); }

void Runner::begin_variant(std::string_view variant, const std::string& label) {
  const std::int32_t index = state_->plan->variant_index(variant);
  if (index < 0)
    throw UsageError(
        fmt::format("plan \"{}\" has no variant \"{}\"", state_->plan->strategy, variant));
  state_->begin(index, label);
}

void Runner::State::report(std::uint32_t task, std::int64_t end_ns) {
  post({.id = {step, task}, .end_ns = end_ns, .executed = false});
  std::unique_lock lock(mutex);
  run_compute(lock);
}

void Runner::report_backward(std::int32_t position) {
  State& s = *state_;
  std::uint32_t task = kNoTask;
  {
    const std::lock_guard lock(s.mutex);
    s.check_usable();
    LINERATE_CHECK(s.in_step, "a gradient outside a step");
    const VariantNames& v = s.names[static_cast<std::size_t>(s.machine->variant(s.step))];
    task = v.backward_of[static_cast<std::size_t>(position)];
    LINERATE_CHECK(task != kNoTask, fmt::format("no backward task for gradient {}", position));
  }
  s.report(task, steady_ns());
}

void Runner::report(std::uint32_t task) { state_->report(task, steady_ns()); }
void Runner::report(std::uint32_t task, std::int64_t end_ns) { state_->report(task, end_ns); }

void Runner::report_before_backward() {
  State& s = *state_;
  const TaskGraph& g = s.graph();
  for (std::uint32_t i = 0; i < g.tasks.size() && g.tasks[i].kind != TaskKind::backward; ++i)
    if (g.tasks[i].origin == Origin::observed) s.report(i, steady_ns());
}

void Runner::report_all(TaskKind kind) {
  State& s = *state_;
  const TaskGraph& g = s.graph();
  for (std::uint32_t i = 0; i < g.tasks.size(); ++i) {
    if (g.tasks[i].kind != kind || g.tasks[i].origin != Origin::observed) continue;
    const bool is_done = [&] {
      const std::lock_guard lock(s.mutex);
      return s.machine->is_done({s.step, i});
    }();
    if (!is_done) s.report(i, steady_ns());
  }
}

std::int64_t Runner::gate(std::uint32_t task) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (true) {
    s.run_compute(lock);
    const TaskId id{s.step, task};
    if (!s.machine->is_open(s.step)) return s.machine->free_at(Resource::compute);
    if (s.machine->gate(id)) return s.machine->could_start_at(id);
    LINERATE_CHECK(s.in_flight > 0, "a gate that nothing will open");
    s.changed.wait(lock);
  }
}

/// Runs the compute lane until `over` holds.
template <typename Over>
void Runner::State::run_until(std::unique_lock<std::mutex>& lock, Over&& over) {
  while (true) {
    run_compute(lock);
    if (over()) return;
    if (in_flight == 0 && compute.empty()) {
      const TaskId id = machine->first_left();
      throw InternalError(fmt::format("{} cannot run: what it waits for was never reported",
                                      title_of(*plan, machine->graph(id.step), machine->task(id))));
    }
    changed.wait(lock, [&] { return failure || !compute.empty() || in_flight == 0 || over(); });
  }
}

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

void Runner::wait_idle() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (s.in_flight > 0 || !s.compute.empty()) {
    s.run_compute(lock);
    s.changed.wait(lock, [&] { return s.failure || s.in_flight == 0 || !s.compute.empty(); });
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
const doc::Plan& Runner::plan() const { return *state_->plan; }
std::int64_t Runner::next_step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->machine->next_step();
}

}  // namespace linerate::exec
