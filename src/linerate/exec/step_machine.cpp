#include "linerate/exec/step_machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::exec {
namespace {

constexpr auto kNetwork = to_index(doc::Resource::network);

std::vector<doc::NextStepEdge> crossing_of(const doc::Plan& plan, const doc::TaskGraph& graph,
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

}  // namespace

StepMachine::StepMachine(std::shared_ptr<const doc::Plan> plan, std::int32_t rank,
                         std::int64_t first_step)
    : plan_(std::move(plan)), next_step_(first_step) {
  for (const doc::TaskGraph& graph : plan_->variants)
    variants_.push_back({doc::VariantIndex(*plan_, graph, rank), crossing_of(*plan_, graph, rank)});
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
bool StepMachine::advance(std::size_t lane, Moves& moves) {
  Lane& here = lanes_[lane];
  if (here.step >= next_step_) return false;
  if (!is_open(here.step)) {  // everything in it is done
    here.step += 1, here.next = 0;
    return true;
  }
  Step& step = at(here.step);
  const std::vector<std::uint32_t>& tasks = index(step.variant).lanes[lane];
  if (here.next == tasks.size()) {
    here.step += 1, here.next = 0;
    return true;
  }
  const std::uint32_t task = tasks[here.next];
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

void StepMachine::advance_all(Moves& moves) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t lane = 0; lane < doc::kLanes; ++lane)
      while (advance(lane, moves)) moved = true;
  }
}

void StepMachine::close_finished() {
  while (!open_.empty() && open_.front().left == 0) open_.pop_front();
}

}  // namespace linerate::exec
