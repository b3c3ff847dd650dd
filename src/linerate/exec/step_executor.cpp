#include "linerate/exec/step_executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/exec/agreement.hpp"

namespace linerate::exec {
namespace {

using doc::Origin;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

std::span<const std::uint32_t> predecessors(const TaskGraph& graph, std::size_t task) {
  return std::span(graph.preds)
      .subspan(graph.pred_begin[task], graph.pred_begin[task + 1] - graph.pred_begin[task]);
}

/// Positions whose gradients lie in the buckets of a task (not backward tasks: those hold positions
/// themselves).
std::vector<std::int32_t> gradients_of(const TaskGraph& graph, const Task& task) {
  std::vector<std::int32_t> positions;
  for (std::int32_t b = task.first; b <= task.last; ++b) {
    const doc::Bucket& bucket = graph.buckets[static_cast<std::size_t>(b)];
    positions.insert(positions.end(), graph.members.begin() + bucket.begin,
                     graph.members.begin() + bucket.end);
  }
  return positions;
}

}  // namespace

StepExecutor::StepExecutor(comm::Communicator& communicator, Payloads& payloads, Recorder* recorder)
    : communicator_(communicator), payloads_(payloads), recorder_(recorder) {}

void StepExecutor::set_operation(TaskKind kind, Operation& operation) {
  operations_[kind] = &operation;
}

const TaskGraph& StepExecutor::graph() const { return plan_->variants[current_]; }

bool StepExecutor::executes(const Task& task) const {
  return task.origin == Origin::executed && !callers_.contains(task.kind) &&
         (task.rank == doc::kEveryRank || task.rank == communicator_.rank());
}

void StepExecutor::check_executable(const TaskGraph& graph, const Task& task) const {
  const bool moves = task.kind == TaskKind::all_reduce || task.kind == TaskKind::reduce_scatter ||
                     task.kind == TaskKind::all_gather || task.kind == TaskKind::broadcast;
  if (moves ? task.rank == doc::kEveryRank : operations_.contains(task.kind)) return;
  throw UsageError(fmt::format(
      "plan \"{}\", variant \"{}\": nothing here can execute a task of kind \"{}\"{}; give the "
      "executor an operation for it or choose another strategy",
      plan_->strategy, graph.name, name_of(task.kind), moves ? " on a single rank" : ""));
}

void StepExecutor::set_plan(std::shared_ptr<const doc::Plan> plan, std::int64_t first_step) {
  LINERATE_CHECK(!in_step_, "a plan replaced inside a step");
  plan_ = std::move(plan);
  require_same(communicator_, "plan",
               {fmt::format("strategy {} for {} ranks, {} gradients, hash {:016x}", plan_->strategy,
                            plan_->ranks, plan_->gradient_names.size(), plan_->hash())});
  // From here on the plan is the same everywhere, so what is thrown is thrown on every rank.
  if (plan_->ranks != communicator_.size())
    throw UsageError(
        fmt::format("plan \"{}\" is for {} ranks, the communicator has {}; plan again for {} ranks",
                    plan_->strategy, plan_->ranks, communicator_.size(), communicator_.size()));
  validate(*plan_);
  variants_.clear();
  for (const TaskGraph& graph : plan_->variants) variants_.push_back(prepare(graph));
  step_ = first_step;
}

StepExecutor::Variant StepExecutor::prepare(const TaskGraph& graph) {
  Variant v;
  v.successors.resize(graph.tasks.size());
  v.of_gradient.resize(plan_->gradient_names.size());
  v.waiting.resize(graph.tasks.size());
  for (std::uint32_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    if (!executes(task)) continue;
    check_executable(graph, task);
    ++v.executed;
    v.queues[static_cast<std::size_t>(task.resource)].push_back(t);
    // Gradients count one by one, not through the backward tasks: a plan may name only the last of
    // a chain, and autograd need not follow the chain.
    std::vector<std::int32_t> gradients = gradients_of(graph, task);
    for (const std::uint32_t p : predecessors(graph, t)) {
      const Task& before = graph.tasks[p];
      if (executes(before)) {
        v.successors[p].push_back(t);
        ++v.waiting[t];
      } else if (before.kind == TaskKind::backward) {
        for (std::int32_t g = before.first; g <= before.last; ++g) gradients.push_back(g);
      }
    }
    std::sort(gradients.begin(), gradients.end());
    gradients.erase(std::unique(gradients.begin(), gradients.end()), gradients.end());
    v.waiting[t] += static_cast<std::int32_t>(gradients.size());
    for (const std::int32_t g : gradients) v.of_gradient[static_cast<std::size_t>(g)].push_back(t);
  }
  if (recorder_) name_tasks(graph, v);
  return v;
}

void StepExecutor::name_tasks(const TaskGraph& graph, Variant& v) {
  for (const Task& task : graph.tasks) {
    std::vector<std::string> parameters;
    if (executes(task))
      for (const std::int32_t g : gradients_of(graph, task))
        parameters.push_back(plan_->gradient_names[static_cast<std::size_t>(g)]);
    v.sets.push_back(parameters.empty() ? -1 : recorder_->set_id(parameters));
    const std::string subject = task.first == task.last
                                    ? fmt::format("bucket {}", task.first)
                                    : fmt::format("buckets {}-{}", task.first, task.last);
    v.names.push_back(executes(task)
                          ? recorder_->name_id(fmt::format("{} {}", name_of(task.kind), subject))
                          : -1);
  }
}

/// Remembers a failure: half a step is no state to go on from.
template <typename Action>
void StepExecutor::guarded(Action action) {
  if (failed_)
    throw CommError(
        "an earlier step failed; its gradients are not usable and no further step can run");
  try {
    action();
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void StepExecutor::begin_step(bool hold) {
  LINERATE_CHECK(plan_ != nullptr, "a step without a plan");
  start(static_cast<std::size_t>(&plan_->variant_of_step(step_) - plan_->variants.data()), hold);
}

void StepExecutor::begin_variant(std::string_view variant, bool hold) {
  LINERATE_CHECK(plan_ != nullptr, "a step without a plan");
  for (std::size_t i = 0; i < plan_->variants.size(); ++i)
    if (plan_->variants[i].name == variant) return start(i, hold);
  throw UsageError(fmt::format("plan \"{}\" has no variant \"{}\"", plan_->strategy, variant));
}

void StepExecutor::start(std::size_t variant, bool hold) {
  guarded([&] {
    LINERATE_CHECK(!in_step_, "a step begun inside a step");
    in_step_ = true;
    hold_ = hold;
    current_ = variant;
    ++step_;
    const Variant& v = variants_[variant];
    state_.assign(v.waiting.size(), {});
    for (std::size_t t = 0; t < state_.size(); ++t) state_[t].waiting = v.waiting[t];
    seen_.assign(v.of_gradient.size(), false);
    next_ = {};
    left_ = v.executed;
    advance();
  });
}

void StepExecutor::gradient_ready(std::int32_t position) {
  guarded([&] {
    LINERATE_CHECK(in_step_ && !seen_.at(static_cast<std::size_t>(position)),
                   "gradient " + std::to_string(position) + " reported twice or outside a step");
    seen_[static_cast<std::size_t>(position)] = true;
    const std::int64_t now = recorder_ ? steady_ns() : 0;
    for (const std::uint32_t t :
         variants_[current_].of_gradient[static_cast<std::size_t>(position)])
      if (--state_[t].waiting == 0) state_[t].ready_ns = now;
    advance();
  });
}

void StepExecutor::launch_rest() {
  guarded([&] {
    LINERATE_CHECK(in_step_, "launch_rest outside a step");
    for (std::size_t g = 0; g < seen_.size(); ++g)
      LINERATE_CHECK(seen_[g] || variants_[current_].of_gradient[g].empty(),
                     "gradient " + plan_->gradient_names[g] + " was never reported");
    hold_ = false;
    advance();
  });
}

void StepExecutor::wait() {
  guarded([&] {
    LINERATE_CHECK(in_step_, "wait outside a step");
    while (!in_flight_.empty()) {
      state_[in_flight_.front()].work->wait();
      advance();
    }
    LINERATE_CHECK(left_ == 0, std::to_string(left_) + " tasks of the plan could not run");
    in_step_ = false;
  });
}

int StepExecutor::agree_flag(int request) {
  std::int32_t flag = request;
  communicator_.all_reduce({&flag, {1}, DType::i32}, comm::Reduce::max, "agree on variant")->wait();
  return flag;
}

/// Starts everything that may start. Tasks of one resource start in the Plan's order: what is ready
/// early waits behind what is not, so that every rank submits collectives in one order. A
/// collective does not wait for the end of the one before it (the communicator queues), unless the
/// Plan says so by an edge.
void StepExecutor::advance() {
  for (bool moved = true; moved;) {
    moved = false;
    collect();
    if (hold_) return;
    const Variant& v = variants_[current_];
    for (std::size_t r = 0; r < next_.size(); ++r) {
      while (next_[r] < v.queues[r].size() && state_[v.queues[r][next_[r]]].waiting == 0) {
        run(v.queues[r][next_[r]++]);
        moved = true;
      }
    }
  }
}

/// Takes completed collectives from the front of the queue.
void StepExecutor::collect() {
  while (!in_flight_.empty() && state_[in_flight_.front()].work->done()) {
    const std::uint32_t t = in_flight_.front();
    state_[t].work->wait();  // throws what the collective failed with
    in_flight_.pop_front();
    payloads_.arrived(graph(), graph().tasks[t]);
    const comm::WorkTimes times = state_[t].work->times();
    complete(t, times.start_ns, times.end_ns);
  }
}

void StepExecutor::run(std::uint32_t t) {
  const Task& task = graph().tasks[t];
  if (is_communication(task.kind)) {
    const comm::Buffer whole = payloads_.buffer(graph(), task);
    state_[t].bytes = whole.count.value * size_of(whole.dtype);
    state_[t].work = submit(task, whole);
    in_flight_.push_back(t);
    return;
  }
  const std::int64_t start = steady_ns();
  operations_.at(task.kind)->run(graph(), task);
  complete(t, start, steady_ns());
}

comm::WorkPtr StepExecutor::submit(const Task& task, const comm::Buffer& whole) {
  const std::string name = fmt::format("{} bucket {}", name_of(task.kind), task.first);
  const std::int64_t block = whole.count.value / communicator_.size();
  comm::Buffer mine = whole;
  mine.count.value = block;
  mine.data =
      static_cast<std::byte*>(whole.data) + communicator_.rank() * block * size_of(whole.dtype);
  switch (task.kind) {
    case TaskKind::all_reduce:
      return communicator_.all_reduce(whole, comm::Reduce::sum, name);
    case TaskKind::broadcast:
      return communicator_.broadcast(whole, 0, name);
    case TaskKind::reduce_scatter:
      return communicator_.reduce_scatter({whole.data, whole.count, whole.dtype}, mine,
                                          comm::Reduce::sum, name);
    default:
      return communicator_.all_gather({mine.data, mine.count, mine.dtype}, whole, name);
  }
}

void StepExecutor::complete(std::uint32_t t, std::int64_t start_ns, std::int64_t end_ns) {
  const Task& task = graph().tasks[t];
  const Variant& v = variants_[current_];
  if (recorder_)
    recorder_->add({.kind = task.kind,
                    .resource = task.resource,
                    .name = v.names[t],
                    .set = v.sets[t],
                    .ready_ns = state_[t].ready_ns,
                    .start_ns = start_ns,
                    .end_ns = end_ns,
                    .bytes = is_communication(task.kind) ? state_[t].bytes : task.bytes});
  for (const std::uint32_t s : v.successors[t])
    if (--state_[s].waiting == 0) state_[s].ready_ns = end_ns;
  --left_;
}

}  // namespace linerate::exec
