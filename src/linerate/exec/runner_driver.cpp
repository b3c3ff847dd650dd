// Sets up a Runner, and has what the one thread that drives its steps calls.
//
// The driver's thread is also the compute lane. It never just sleeps: each function that waits runs
// the tasks that stand in the compute lane first, and again whenever an event adds one. So a task
// that unpacks a bucket runs on the thread that waits for the bucket.
#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/runner.hpp"

namespace linerate::exec {

using doc::Origin;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

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

/// Throws UsageError for a task that nothing here can execute.
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

/// Makes only groups that send something: owners of inverses have dozens of groups of one rank.
void Runner::State::make_groups() {
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
void Runner::State::start_workers() {
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

/// Runs what stands in the compute lane on this thread; returns with the lock held.
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
  if (failure) refuse_after(failure);
}

/// When the step that is about to begin begins. If computation is emulated, a step begins when the
/// emulated device is free and not when this thread comes here. Then the seconds that this thread
/// loses between two steps do not slow the rehearsed job.
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
  current = &plan->variants[to_index(variant)];
  open[machine->next_step()] = {name, recorder ? recorder->step() : 0,
                                std::vector<std::int64_t>(current->tasks.size(), -1)};
  step = machine->begin_step(variant, moves, beginning_ns());
  pumping = std::this_thread::get_id();
  try {
    // Like pump(): a collective may end inside its submission, so `pumping` makes post() leave the
    // event for pump() below.
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

void Runner::State::sleep_until(std::unique_lock<std::mutex>& lock,
                                const std::function<bool()>& holds) {
  const auto own = awaited.insert(awaited.end(), holds);
  changed.wait(lock, holds);
  awaited.erase(own);
}

/// Runs the compute lane until `over` holds. A step whose observed tasks were not all reported can
/// get stuck. Then nothing is in flight and nothing stands in the compute lane, so this throws and
/// names the first task that cannot run.
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
    sleep_until(lock, [&] { return failure || !compute.empty() || in_flight == 0 || over(); });
  }
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

}  // namespace linerate::exec
