// The step machine counts. Each task of an open step has the number of its predecessors that are
// not done. Each lane has a cursor on the next task of its list. An event lowers some counts; then
// advance_all() pushes each cursor as far as it goes. The Runner drives it with tasks that end
// (runner.cpp), the StreamRunner with tasks that are enqueued (streams/stream_runner.cpp).
//
// An example. The compute lane has the observed tasks `backward 1` and `backward 0`. The network's
// lane has `all-reduce 1` and `all-reduce 0`, each after the backward task of its number.
// - begin_step() starts `backward 1`, which waits for nothing. The cursor of the compute lane stays
//   there until the task is done.
// - Autograd reports `backward 0` first. The cursor has not come to this task, so the task is only
//   marked as reported. `all-reduce 0` does not start, because the Plan counts on lane order.
// - Then `backward 1` is reported. It is complete, so `all-reduce 1` may start. The cursor moves on
//   and finds `backward 0` reported, so that task is complete, too. The network's cursor does not
//   wait for ends, hence this one event starts both collectives, in Plan order.
//
// The cost of an event is the number of edges out of the tasks that it completes, and one look at
// each lane.
#include "linerate/exec/step_machine.hpp"

#include <fmt/format.h>

#include "linerate/comm/fingerprint.hpp"

namespace linerate::exec {
namespace {

constexpr auto kNetwork = to_index(doc::Resource::network);

}  // namespace

std::vector<doc::NextStepEdge> edges_into_next(const doc::Plan& plan, const doc::TaskGraph& graph,
                                               std::int32_t rank) {
  std::vector<doc::NextStepEdge> edges;
  for (const doc::NextStepEdge& e : graph.next_step) {
    const doc::TaskGraph& next = plan.variants[to_index(e.variant)];
    if (plan.group_of(graph.tasks[e.from]).holds(rank) &&
        plan.group_of(next.tasks[e.to]).holds(rank))
      edges.push_back(e);
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const auto& a, const auto& b) { return a.from < b.from; });
  return edges;
}

StepMachine::StepMachine(std::shared_ptr<const doc::Plan> plan, std::int32_t rank,
                         std::int64_t first_step)
    : plan_(std::move(plan)), next_step_(first_step) {
  for (const doc::TaskGraph& graph : plan_->variants)
    variants_.push_back(
        {doc::VariantIndex(*plan_, graph, rank), edges_into_next(*plan_, graph, rank)});
  for (Lane& lane : lanes_) lane.step = first_step;
}

bool StepMachine::is_open(std::int64_t step) const {
  return !open_.empty() && step >= open_.front().number && step <= open_.back().number;
}

std::size_t StepMachine::position_of(std::int64_t step) const {
  LINERATE_CHECK(is_open(step), fmt::format("step {} is not open", step));
  return to_index(step - open_.front().number);
}

bool StepMachine::gate(TaskId id) const { return at(id.step).waits[id.task] == 0; }
bool StepMachine::is_done(TaskId id) const {
  // Steps before the open ones are done entirely.
  if (id.step < next_step_ && !is_open(id.step)) return true;
  const State state = at(id.step).state[id.task];
  return state == State::done || state == State::reported;
}

bool StepMachine::has_executed(std::int64_t step, doc::Resource lane) const {
  if (step < next_step_ && !is_open(step)) return true;
  const Step& s = at(step);
  const std::vector<doc::Task>& tasks = graph(step).tasks;
  const std::vector<std::uint32_t>& in_lane = index(s.variant).lanes[to_index(lane)];
  return std::all_of(in_lane.begin(), in_lane.end(), [&](std::uint32_t task) {
    return tasks[task].origin == doc::Origin::observed || s.state[task] == State::done;
  });
}

TaskId StepMachine::first_left() const {
  for (const Step& step : open_) {
    const doc::TaskGraph& graph = plan_->variants[to_index(step.variant)];
    const doc::VariantIndex& index = variants_[to_index(step.variant)].index;
    for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
      if (index.has[i] && step.state[i] != State::done &&
          graph.tasks[i].origin == doc::Origin::executed)
        return {step.number, i};
  }
  check_failed("executed_left() > 0", "every executed task is done");
}

/// A new step counts an edge from the step before it only while that edge's task is not done. If
/// the step before is closed, all its tasks are done, so no edge out of it counts.
std::int64_t StepMachine::begin_step(std::int32_t variant, Moves& moves, std::int64_t at_ns) {
  now_ = at_ns;
  const std::int64_t number = next_step_++;
  if (variant < 0) variant = plan_->variant_index_of_step(number);
  const Variant& v = variants_[to_index(variant)];
  const doc::TaskGraph& graph = plan_->variants[to_index(variant)];
  Step step{number, variant, v.index.waits, {}, {}, 0};
  step.state.assign(graph.tasks.size(), State::waiting);
  step.ready_at.assign(graph.tasks.size(), at_ns);
  if (is_open(number - 1)) {
    const Step& before = open_.back();
    for (const doc::NextStepEdge& e : variants_[to_index(before.variant)].crossing)
      if (e.variant == variant && before.state[e.from] != State::done) ++step.waits[e.to];
  }
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    if (!v.index.has[i]) continue;
    ++step.left;
    executed_left_ += graph.tasks[i].origin == doc::Origin::executed;
    if (step.waits[i] == 0) moves.ready.push_back({number, i});
  }
  open_.push_back(std::move(step));
  advance_all(moves);
  close_finished();
  return number;
}

void StepMachine::done(TaskId id, Moves& moves, std::int64_t at_ns) {
  now_ = at_ns;
  Step& step = at(id.step);
  const doc::Task& task = graph(id.step).tasks[id.task];
  const auto place = [&] {
    return fmt::format("step {}, {}", id.step, title_of(*plan_, graph(id.step), task));
  };
  LINERATE_CHECK(index(step.variant).has[id.task], place() + ": not a task of this rank");
  const State state = step.state[id.task];
  LINERATE_CHECK(state == State::waiting || state == State::started, place() + ": done twice");
  LINERATE_CHECK(step.waits[id.task] == 0, place() + ": done before what it waits for");
  LINERATE_CHECK(task.origin == doc::Origin::observed || state == State::started,
                 place() + ": done before it started");
  if (state == State::started)
    complete(step, id.task, moves);
  else
    step.state[id.task] = State::reported;
  advance_all(moves);
  close_finished();
}

/// The task counts as done from here on: for its successors, in this step and the next, and for its
/// lane.
void StepMachine::complete(Step& step, std::uint32_t task, Moves& moves) {
  step.state[task] = State::done;
  --step.left;
  Lane& lane = lanes_[to_index(graph(step.number).tasks[task].resource)];
  lane.free_at = std::max(lane.free_at, now_);
  executed_left_ -= graph(step.number).tasks[task].origin == doc::Origin::executed;
  for (const std::uint32_t s : index(step.variant).successors_of(task)) release(step, s, moves);
  release_next_step(step, task, moves);
}

void StepMachine::release(Step& step, std::uint32_t task, Moves& moves) {
  step.ready_at[task] = std::max(step.ready_at[task], now_);
  if (--step.waits[task] == 0) moves.ready.push_back({step.number, task});
}

void StepMachine::release_next_step(const Step& from, std::uint32_t task, Moves& moves) {
  if (!is_open(from.number + 1)) return;
  Step& next = at(from.number + 1);
  const auto& edges = variants_[to_index(from.variant)].crossing;
  auto e = std::lower_bound(
      edges.begin(), edges.end(), task,
      [](const doc::NextStepEdge& edge, std::uint32_t t) { return edge.from < t; });
  for (; e != edges.end() && e->from == task; ++e)
    if (e->variant == next.variant) release(next, e->to, moves);
}

/// Moves a lane on by one task; false if it has to wait.
/// A task that is `started` holds up its lane until it is done. The network's lane is the
/// exception, because its tasks queue in the communicator.
bool StepMachine::advance(std::size_t lane, Moves& moves) {
  Lane& here = lanes_[lane];
  if (here.step >= next_step_) return false;
  const auto tasks_of = [&](const Step& step) -> const std::vector<std::uint32_t>& {
    return index(step.variant).lanes[lane];
  };
  // A step that is not open is done.
  if (!is_open(here.step) || here.next == tasks_of(at(here.step)).size()) {
    here.step += 1, here.next = 0;
    return true;
  }
  Step& step = at(here.step);
  const std::uint32_t task = tasks_of(step)[here.next];
  if (step.state[task] == State::reported) {
    complete(step, task, moves);
  } else if (step.state[task] == State::waiting) {
    if (step.waits[task] > 0) return false;
    step.state[task] = State::started;
    moves.start.push_back({here.step, task});
    if (lane != kNetwork) return false;
  } else if (step.state[task] == State::started && lane != kNetwork) {
    return false;
  }
  ++here.next;
  return true;
}

/// A lane that moves may complete a reported task. That opens gates in other lanes, so the lanes
/// take turns until none of them moves.
void StepMachine::advance_all(Moves& moves) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t lane = 0; lane < doc::kLanes; ++lane)
      while (advance(lane, moves)) moved = true;
  }
}

/// Steps close in order. A later step that is through stays open until the steps before it are.
void StepMachine::close_finished() {
  while (!open_.empty() && open_.front().left == 0) open_.pop_front();
}

void StepRunner::agree_on(const doc::Plan& plan, comm::Communicator& communicator) {
  comm::require_same(
      communicator, "plan",
      {fmt::format("strategy {} for {} ranks, {} gradients, hash {:016x}", plan.strategy,
                   plan.ranks, plan.gradient_names.size(), plan.hash())});
  // The plan is the same on all ranks from here on, and so is what is thrown.
  if (plan.ranks != communicator.size())
    throw UsageError(
        fmt::format("plan \"{}\" is for {} ranks, the communicator has {}; plan again for {} ranks",
                    plan.strategy, plan.ranks, communicator.size(), communicator.size()));
  validate(plan);
}

void StepRunner::refuse_after(const std::exception_ptr& failure) {
  std::string what = "an exception of an unknown type";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  throw CommError(fmt::format(
      "an earlier step failed ({}), so its gradients are not usable and no further step can run",
      what));
}

std::int32_t counts_of(const doc::TaskGraph& graph, std::int32_t payload) {
  const auto at =
      std::find_if(graph.payloads.begin(), graph.payloads.end(), [payload](const doc::Payload& p) {
        return p.content == doc::Content::counts && p.of == payload;
      });
  return at == graph.payloads.end() ? -1 : static_cast<std::int32_t>(at - graph.payloads.begin());
}

std::vector<std::int64_t> Payloads::counts(const doc::TaskGraph& graph, const doc::Task& task) {
  const std::int32_t payload = counts_of(graph, task.first);
  if (payload < 0)
    throw InternalError(graph.name + ": nobody counts the parts of payload " +
                        std::to_string(task.first));
  const comm::Buffer b = buffer(graph, payload);
  const auto* first = static_cast<const std::int64_t*>(b.data);
  return {first, first + b.count.value};
}

}  // namespace linerate::exec
