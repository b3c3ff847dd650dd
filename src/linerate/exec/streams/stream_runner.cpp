// A step's tasks are enqueued in the order in which the step machine starts them. For each task
// this collects the places that the task needs (need). One place a stream is enough, because the
// last place of a stream implies those before it. Then it leaves out what is known or implied,
// enqueues the other waits, and enqueues the work. A task costs its edges and arrays, and the
// square of the number of streams, which is a handful.
#include "linerate/exec/streams/stream_runner.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::exec {
namespace {

/// Entry by entry the later place: what a stream knows after a wait.
void join(std::vector<std::int64_t>& places, const std::vector<std::int64_t>& others) {
  for (std::size_t s = 0; s < places.size(); ++s) places[s] = std::max(places[s], others[s]);
}

TaskMarks marks_of(const doc::Plan& plan, bool value) {
  TaskMarks marks;
  for (const doc::TaskGraph& graph : plan.variants) marks.emplace_back(graph.tasks.size(), value);
  return marks;
}

}  // namespace

StreamRunner::StreamRunner(std::shared_ptr<const StreamProgram> program, StreamDevice& device)
    : program_(std::move(program)),
      device_(device),
      machine_(program_->plan, program_->rank),
      known_(program_->lanes.count(), Places(program_->lanes.count(), 0)),
      last_(program_->lanes.count()),
      known_by_host_(program_->lanes.count(), 0),
      arrays_(program_->payloads.count()),
      waits_(program_->lanes.count()),
      waited_for_(marks_of(*program_->plan, false)) {}

// ---- a step ----

std::int64_t StreamRunner::begin_step(std::int32_t variant) {
  LINERATE_CHECK(machine_.idle(), "a step begun before the one before it is enqueued");
  step_ = machine_.next_step();
  if (variant < 0) variant = program_->plan->variant_index_of_step(step_);
  close_steps();
  const std::size_t tasks = program_->plan->variants[to_index(variant)].tasks.size();
  steps_.push_back({step_, variant, std::vector<Place>(tasks), std::vector<Place>(tasks)});
  Moves moves;
  machine_.begin_step(variant, moves);
  take(moves);
  return step_;
}

/// Drops the steps before the last one. No edge reaches back further than one step, so their events
/// are free to be recorded again.
void StreamRunner::close_steps() {
  while (steps_.size() > 1) {
    for (const Place& place : steps_.front().tasks)
      if (place.event >= 0) free_.push_back(place.event);
    steps_.pop_front();
  }
}

void StreamRunner::open(std::uint32_t task) {
  LINERATE_CHECK(can_open(task), "a task is opened before what it waits for is enqueued");
  wait_before({step_, task});
}

void StreamRunner::report(std::uint32_t task) {
  const TaskId id{step_, task};
  add(id);
  Moves moves;
  machine_.done(id, moves);
  take(moves);
}

void StreamRunner::run_step(std::int32_t variant) {
  begin_step(variant);
  const doc::VariantIndex& index = machine_.index(steps_.back().variant);
  for (std::uint32_t i = 0; i < graph().tasks.size(); ++i) {
    const doc::Task& task = graph().tasks[i];
    if (!index.has[i] || task.origin == doc::Origin::executed) continue;
    open(i);
    device_.enqueue(stream_of({step_, i}), {{step_, i}, graph(), task});
    report(i);
  }
}

/// Enqueues tasks in the order in which the machine starts them. An enqueued task is done for the
/// machine, so it may start others.
void StreamRunner::take(const Moves& moves) {
  Moves next;
  std::deque<TaskId> queue(moves.start.begin(), moves.start.end());
  while (!queue.empty()) {
    const TaskId id = queue.front();
    queue.pop_front();
    if (graph().tasks[id.task].origin == doc::Origin::observed) continue;
    enqueue(id);
    next.clear();
    machine_.done(id, next);
    queue.insert(queue.end(), next.start.begin(), next.start.end());
  }
}

void StreamRunner::enqueue(TaskId id) {
  if (host_read_of(id) == HostRead::counts) let_host_read_counts(id);
  wait_before(id);
  device_.enqueue(stream_of(id), {id, graph(), graph().tasks[id.task]});
  add(id);
}

/// Takes note of a task whose work is in its stream: its place, its event if it has one, and the
/// arrays that it used.
void StreamRunner::add(TaskId id) {
  const StreamId stream = stream_of(id);
  Place& place = steps_.back().tasks[id.task];
  place = {stream, ++known_[to_index(stream)][to_index(stream)], id, steps_.back().variant, -1};
  if (program_->has_event[to_index(place.variant)][id.task]) place.event = record(stream);
  last_[to_index(stream)] = place;
  if (stream == LaneStreams::kComputeStream) settle_compute_lane();
  use_memory(place);
  if (graph().tasks[id.task].resource == doc::Resource::network) last_collective_ = place;
  if (host_read_of(id) == HostRead::result) let_host_wait(place);
}

HostRead StreamRunner::host_read_of(TaskId id) const {
  return exec::host_read_of(*program_->plan, graph(), graph().tasks[id.task]);
}

// ---- waits ----

void StreamRunner::wait_before(TaskId id) {
  const StreamId stream = stream_of(id);
  begin_waits(stream);
  need_predecessors(id, stream);
  need_memory(id, stream);
  enqueue_waits(stream);
}

void StreamRunner::fork() {
  const EventId event = record(LaneStreams::kComputeStream);
  for (std::size_t s = 0; s < known_.size(); ++s) {
    if (s == to_index(LaneStreams::kComputeStream)) continue;
    device_.wait(static_cast<StreamId>(s), event);
    join(known_[s], over_at_[to_index(event)]);
    ++counts_.waits;
  }
  free_.push_back(event);
}

void StreamRunner::settle() { settle_all(last_); }
void StreamRunner::settle(TaskId id) { settle_all({&place_of(id), 1}); }

void StreamRunner::settle_all(std::span<const Place> places) {
  begin_waits(LaneStreams::kComputeStream);
  for (const Place& place : places) need(place, LaneStreams::kComputeStream, false);
  enqueue_waits(LaneStreams::kComputeStream);
}

bool StreamRunner::is_settled(TaskId id) const {
  const Place& place = place_of(id);
  return place.place <= known_[to_index(LaneStreams::kComputeStream)][to_index(place.stream)];
}

const StreamRunner::Place& StreamRunner::place_of(TaskId id) const {
  const auto step = std::find_if(steps_.begin(), steps_.end(),
                                 [&](const StepPlaces& s) { return s.number == id.step; });
  LINERATE_CHECK(step != steps_.end() && step->tasks[id.task].place > 0,
                 "a task is waited for that is not enqueued, or long over");
  return step->tasks[id.task];
}

void StreamRunner::begin_waits(StreamId stream) {
  join(known_[to_index(stream)], known_by_host_);
  for (Wait& wait : waits_) wait.on.place = 0;
}

/// Waits of one task can imply each other. A wait for an event recorded now covers more than its
/// task needs, since the event stands at the stream's end. A wait for an exact event covers only
/// what its task came after, so two exact ones never imply each other.
///
/// So there are two passes. The first enqueues new events' waits that no other wait implies. The
/// second takes all that are left, except those that an exact wait implies; wait() drops those that
/// are known by then. Two waits for new events that imply each other come to the second pass both,
/// and the first one enqueued makes the other needless.
void StreamRunner::enqueue_waits(StreamId stream) {
  for (Wait& wait : waits_)
    if (wait.on.place > 0) complete(wait);
  // First pass: waits for events recorded now, unless any other wait implies them.
  for (const Wait& w : waits_)
    if (w.on.place > 0 && !w.is_exact && !is_implied(w, false)) wait(stream, w);
  for (const bool exact : {false, true})
    for (const Wait& w : waits_)
      if (w.on.place > 0 && w.is_exact == exact && !is_implied(w, true)) wait(stream, w);
}

void StreamRunner::need_predecessors(TaskId id, StreamId stream) {
  const StepPlaces& here = steps_.back();
  for (const std::uint32_t p : graph().predecessors(id.task)) need_task(here, p, stream);
  if (graph().tasks[id.task].resource == doc::Resource::network)
    need(last_collective_, stream, false);
  if (steps_.size() < 2) return;
  const auto& edges = program_->from_before[to_index(here.variant)];
  auto e =
      std::lower_bound(edges.begin(), edges.end(), id.task,
                       [](const EdgeFromBefore& edge, std::uint32_t to) { return edge.to < to; });
  for (; e != edges.end() && e->to == id.task; ++e)
    if (e->variant == steps_.front().variant) need_task(steps_.front(), e->from, stream);
}

/// In the compute stream autograd has an order of its own. For example the lane has g2, g1, g0 and
/// autograd enqueues g1 at place 1, g2 at place 2 and g0 at place 3. A task after g1 may count on
/// g2 as well, so it waits for place 2 (`settled`), not for place 1.
void StreamRunner::need_task(const StepPlaces& step, std::uint32_t task, StreamId stream) {
  const bool computes = step.tasks[task].stream == LaneStreams::kComputeStream;
  need((computes ? step.settled : step.tasks)[task], stream, false);
}

/// A task reads what was written before it, and writes over what was written and read.
void StreamRunner::need_memory(TaskId id, StreamId stream) {
  for (const PayloadUse& use : program_->payloads.of(steps_.back().variant, id.task)) {
    const Array& array = arrays_[to_index(use.array)];
    need(array.written, stream, true);
    if (!use.writes) continue;
    for (const Place& read : array.read) need(read, stream, true);
  }
}

/// Keeps the last place of each stream, which implies the earlier ones. A place that the task's
/// stream is past anyway is no need.
void StreamRunner::need(const Place& on, StreamId stream, bool for_memory) {
  if (on.place == 0 || on.place <= known_[to_index(stream)][to_index(on.stream)]) return;
  Wait& wait = waits_[to_index(on.stream)];
  if (on.place <= wait.on.place) return;
  wait.on = on;
  wait.for_memory = for_memory;
}

/// Decides which event a wait is for. It is the event right after its task, unless there is none or
/// it may have been recorded again. Then an event is recorded now.
void StreamRunner::complete(Wait& wait) const {
  wait.is_exact = wait.on.event >= 0 && is_recent(wait.on);
  wait.over = wait.is_exact ? over_at_[to_index(wait.on.event)] : known_[to_index(wait.on.stream)];
}

bool StreamRunner::is_implied(const Wait& wait, bool by_exact) const {
  return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& other) {
    return &other != &wait && other.on.place > 0 && (other.is_exact || !by_exact) &&
           other.over[to_index(wait.on.stream)] >= wait.on.place;
  });
}

/// The event of a wait. An event that is recorded for this wait is free again as soon as the wait
/// is enqueued. A later recording of the event does not change what the wait is for.
EventId StreamRunner::event_of(const Wait& wait) {
  if (is_recent(wait.on)) waited_for_[to_index(wait.on.variant)][wait.on.id.task] = true;
  if (wait.is_exact) return wait.on.event;
  const EventId event = record(wait.on.stream);
  free_.push_back(event);
  return event;
}

void StreamRunner::wait(StreamId stream, const Wait& wait) {
  if (wait.on.place <= known_[to_index(stream)][to_index(wait.on.stream)]) return;
  device_.wait(stream, event_of(wait));
  join(known_[to_index(stream)], wait.over);
  ++counts_.waits;
  counts_.memory_waits += wait.for_memory;
}

void StreamRunner::let_host_wait(const Place& on) {
  if (on.place <= known_by_host_[to_index(on.stream)]) return;
  Wait wait;
  wait.on = on;
  complete(wait);
  device_.host_wait(event_of(wait));
  join(known_by_host_, wait.over);
  ++counts_.host_waits;
}

/// The host waits for the collective in which ranks told each other how much they send. It reads
/// the counts to enqueue the gather.
void StreamRunner::let_host_read_counts(TaskId id) {
  const std::int32_t counts = counts_of(graph(), graph().tasks[id.task].first);
  for (const std::uint32_t p : graph().predecessors(id.task)) {
    const doc::Task& before = graph().tasks[p];
    if (is_communication(before.kind) && before.first == counts)
      let_host_wait(steps_.back().tasks[p]);
  }
}

// ---- events and memory ----

EventId StreamRunner::record(StreamId stream) {
  if (free_.empty()) {
    free_.push_back(static_cast<EventId>(over_at_.size()));
    over_at_.emplace_back();
  }
  const EventId event = free_.back();
  free_.pop_back();
  device_.record(event, stream);
  over_at_[to_index(event)] = known_[to_index(stream)];
  ++counts_.events;
  return event;
}

void StreamRunner::settle_compute_lane() {
  StepPlaces& here = steps_.back();
  const auto& lane = machine_.index(here.variant).lanes[to_index(doc::Resource::compute)];
  for (; here.lane_next < lane.size(); ++here.lane_next) {
    const Place& own = here.tasks[lane[here.lane_next]];
    if (own.place == 0) return;
    Place& settled = here.settled[lane[here.lane_next]];
    settled = own;
    if (here.lane_next == 0) continue;
    const Place& before = here.settled[lane[here.lane_next - 1]];
    if (before.place > own.place) settled = before;
  }
}

/// A write comes after all reads of the array, so it alone is remembered. Of the reads in one
/// stream the last one is enough.
void StreamRunner::use_memory(const Place& by) {
  for (const PayloadUse& use : program_->payloads.of(by.variant, by.id.task)) {
    Array& array = arrays_[to_index(use.array)];
    if (use.writes) {
      array.written = by;
      array.read.clear();
      continue;
    }
    const auto at = std::find_if(array.read.begin(), array.read.end(),
                                 [&](const Place& read) { return read.stream == by.stream; });
    if (at == array.read.end())
      array.read.push_back(by);
    else
      *at = by;
  }
}

// Prepares a Plan for a rank's streams. Each event costs the host some time, so only tasks that
// something waits for get one. Which these are depends on the order of steps, too. So the runner
// itself is run on a device that does nothing, over steps of each variant. The events that it
// waited for are the ones to record.

namespace {

class NoDevice : public StreamDevice {
  void enqueue(StreamId, const StreamWork&) override {}
};

std::vector<std::vector<EdgeFromBefore>> edges_from_before(const doc::Plan& plan,
                                                           std::int32_t rank) {
  std::vector<std::vector<EdgeFromBefore>> edges(plan.variants.size());
  for (std::size_t v = 0; v < plan.variants.size(); ++v)
    for (const doc::NextStepEdge& e : edges_into_next(plan, plan.variants[v], rank))
      edges[to_index(e.variant)].push_back({e.to, e.from, static_cast<std::int32_t>(v)});
  for (auto& of_variant : edges)
    std::stable_sort(of_variant.begin(), of_variant.end(),
                     [](const auto& a, const auto& b) { return a.to < b.to; });
  return edges;
}

/// The variants to try, step by step: the schedule's warm-up and two of its cycles, then each
/// variant that a runner may choose besides. Each follows itself or its cycle once, so that edges
/// from the step before are seen as well.
std::vector<std::int32_t> steps_to_try(const doc::Plan& plan) {
  std::vector<std::int32_t> steps = plan.warm_up;
  for (int again = 0; again < 2; ++again)
    steps.insert(steps.end(), plan.cycle.begin(), plan.cycle.end());
  const auto scheduled = steps;
  for (std::int32_t v = 0; v < static_cast<std::int32_t>(plan.variants.size()); ++v)
    if (std::find(scheduled.begin(), scheduled.end(), v) == scheduled.end())
      steps.insert(steps.end(), {v, v});
  return steps;
}

}  // namespace

std::shared_ptr<const StreamProgram> make_stream_program(std::shared_ptr<const doc::Plan> plan,
                                                         std::int32_t rank) {
  const doc::Plan& p = *plan;
  const auto program = std::make_shared<StreamProgram>(
      StreamProgram{std::move(plan), rank, LaneStreams(p, rank), PayloadUses(p),
                    edges_from_before(p, rank), marks_of(p, true)});
  NoDevice device;
  StreamRunner runner(program, device);
  for (const std::int32_t variant : steps_to_try(p)) runner.run_step(variant);
  program->has_event = runner.waited_for();
  return program;
}

// Records the tasks of a step that runs in streams. Each task has a mark before and after it in its
// stream. Times are numbers of moments until StreamTimes has read them. A task's ready time is the
// latest of its predecessors' ends, which the host does not know either. So it is a moment of its
// own, the latest of others.

StepRecording::StepRecording(StreamDevice& device, Recorder& recorder,
                             std::shared_ptr<StreamTimes> times,
                             std::shared_ptr<const StreamProgram> program)
    : device_(device), recorder_(recorder), times_(std::move(times)), program_(std::move(program)) {
  for (const doc::TaskGraph& graph : program_->plan->variants)
    names_.emplace_back(*program_->plan, graph, &recorder_);
}

void StepRecording::begin_step(std::int32_t variant) {
  records_ = recorder_.keeps();
  ends_before_ = std::exchange(ends_, {});
  if (!records_) return;
  recorded_as_ = recorder_.step();
  begin_ = times_->begin_step();
  const std::size_t tasks = program_->plan->variants[to_index(variant)].tasks.size();
  ends_ = {variant, std::vector<std::int64_t>(tasks, -1)};
}

void StepRecording::note_end(std::uint32_t task) {
  if (records_) ends_.of_task[task] = times_->set_in(LaneStreams::kComputeStream);
}

void StepRecording::enqueue(StreamId stream, const StreamWork& work) {
  if (!records_) return device_.enqueue(stream, work);
  const std::int64_t start = times_->set_in(stream);
  device_.enqueue(stream, work);
  const std::int64_t end = ends_.of_task[work.id.task] = times_->set_in(stream);
  recorder_.add(
      names_[to_index(ends_.variant)].event_of(work.id.task, recorder_.time_of(ready(work)),
                                               recorder_.time_of(start), recorder_.time_of(end)),
      recorded_as_);
}

/// When a task could have run, as the step machine defines it: when its last predecessor was over
/// and its step had begun. Predecessors in the step before count as well.
std::int64_t StepRecording::ready(const StreamWork& work) {
  std::vector<std::int64_t> ends = {begin_};
  const auto add = [&ends](const Ends& of, std::uint32_t task) {
    if (of.of_task[task] >= 0) ends.push_back(of.of_task[task]);
  };
  for (const std::uint32_t p : work.graph.predecessors(work.id.task)) add(ends_, p);
  for (const EdgeFromBefore& edge : program_->from_before[to_index(ends_.variant)])
    if (edge.to == work.id.task && edge.variant == ends_before_.variant)
      add(ends_before_, edge.from);
  return times_->latest_of(ends);
}

}  // namespace linerate::exec
