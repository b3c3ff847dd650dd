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

#include <algorithm>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {

using doc::Origin;
using doc::Resource;
using doc::Task;
using doc::TaskGraph;

/// From any thread. A collective may be done while it is submitted, on the thread that is inside
/// pump(). That thread holds the mutex already, so it only queues the event; its loop in pump()
/// takes it next.
void Runner::State::post(RunnerEvent event) {
  {
    const std::lock_guard lock(events_mutex);
    events.push_back(std::move(event));
  }
  if (pumping.load() != std::this_thread::get_id()) pump();
}

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

/// Takes an event. The first exception of a step is kept and ends the runner's use. Later events of
/// a failed step only count down what is in flight.
void Runner::State::handle(const RunnerEvent& event) {
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
      workers[to_index(task.resource)]->post(
          [self = shared_from_this(), id] { self->execute(id); });
    }
  }
}

/// The callback holds the runner's state and the payloads' memory, since a collective may outlive
/// both the step and the runner.
void Runner::State::submit(TaskId id) {
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

void Runner::State::record(const RunnerEvent& event) {
  if (!recorder) return;
  const Task& task = machine->task(event.id);
  if (is_wait(task) && event.end_ns == event.start_ns) return;  // nothing took place
  const VariantNames& v = names[to_index(machine->variant(event.id.step))];
  const OpenStep& step_of_task = open.at(event.id.step);
  recorder->add(
      v.event_of(event.id.task, step_of_task.ready_ns[event.id.task], event.start_ns, event.end_ns),
      step_of_task.recorded_as);
}

/// Runs an operation on this thread, or waits until an emulated one is due, and reports it.
///
/// The due time follows from when the task could start, not from when this thread woke up. For
/// example two emulated tasks of 2 ms follow each other from 10 ms on. The first is due at 12 ms.
/// Its thread wakes at 12.2 ms and reports 12 ms as the end. So the second is due at 14 ms, and
/// late wake-ups do not add up.
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
  RunnerEvent event{.id = id, .start_ns = steady_ns()};
  try {
    operations.find(plan->operation_name(*task))->second->run(*in, *task);
  } catch (...) {
    event.error = std::current_exception();
  }
  event.end_ns = steady_ns();
  post(std::move(event));
}

void LaneWorker::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void LaneWorker::loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return !queue_.empty(); }) && !stop.stop_requested()) {
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

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
