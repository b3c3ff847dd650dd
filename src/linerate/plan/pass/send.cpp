// One collective a bucket. Their order on the network is that of the buckets, on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// The task after which every gradient of a bucket is in place. Backward runs in order, so it is the
// task of the last position.
Handle last_gradient(const doc::Payload& bucket, const StepDraft& step) {
  return step.ready[to_index(*std::ranges::max_element(members_of(*step.graph, bucket)))];
}

// In the first step gradients are collected bucket by bucket, after backward.
Handle collected_last(const doc::Payload& bucket, const StepDraft& step) {
  return step.ready[to_index(members_of(*step.graph, bucket).back())];
}

// The end of backward. For a bucket of a turn that another one follows, it is the turn's last
// gradient.
Handle backward_end(const PassInput& input, std::size_t bucket, const StepDraft& step) {
  const auto& gradients = input.workload.gradients;
  const int turn = turn_of(input, step, bucket);
  if (turn == gradients.back().turn) return step.backward_end;
  const auto next = std::ranges::upper_bound(gradients, turn, {}, &doc::Gradient::turn);
  return step.ready[to_index(next - gradients.begin() - 1)];
}

// The task that the bucket's collective waits for, by schedule and kind of step.
Handle ready_task(const PassInput& input, std::size_t b, const StepDraft& step) {
  const doc::Payload& bucket = step.graph->payloads[b];
  if (input.first_step)
    return input.housekeeping ? collected_last(bucket, step) : backward_end(input, b, step);
  if (input.schedule == Schedule::at_the_end) return backward_end(input, b, step);
  return last_gradient(bucket, step);
}

double ready_s(const PassInput& input, const doc::Payload& bucket, const StepDraft& step) {
  double latest = 0;
  for (const std::int32_t p : members_of(*step.graph, bucket))
    latest = std::max(latest, input.workload.gradients[to_index(p)].ready_s);
  return latest;
}

// Gradients into buckets: .grad times the rank's weight, as soon as autograd has left it.

doc::Task collect_task(const PassInput& input, std::int32_t position, std::int16_t operation) {
  doc::Task task =
      compute_task(doc::TaskKind::copy, operation, doc::Subject::gradients, position, position);
  task.bytes = input.workload.gradients[to_index(position)].bytes();
  return task;
}

// What the job sends besides gradients, as its Workload says.
//
// The computation waits for each of these collectives, so a collective parts the computation in
// two. It waits for the computation before its place, and the computation after its place waits for
// it. The network runs in one order on every rank. A collective stands there before the first task
// that needs computation from after its place. It cannot go later without holding up the
// computation, and all tasks before it can go first.

using doc::OtherCollective;
using doc::StepPlace;
using doc::TaskKind;

TaskKind kind_of(Collective collective) {
  for (int k = 0; k < static_cast<int>(doc::kTaskKindNames.size()); ++k) {
    const auto kind = static_cast<TaskKind>(k);
    if (doc::is_communication(kind) && collective_of(kind) == collective) return kind;
  }
  throw InternalError(fmt::format("no task is a {}", name_of(collective)));
}

/// Groups of `size` ranks that stand next to each other. The last part has the ranks that are left.
/// A rank by itself exchanges nothing, so it gets no part. With 7 ranks and size 3: {0, 1, 2} and
/// {3, 4, 5}.
std::int32_t add_group(int size, int ranks, doc::Plan& plan) {
  doc::Group group{fmt::format("{} ranks each", size), {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (rank % size == 0) group.parts.emplace_back();
    group.parts.back().push_back(rank);
  }
  if (group.parts.back().size() == 1) group.parts.pop_back();
  return plan.group(group);
}

class OtherCollectives {
 public:
  OtherCollectives(const PassInput& input, StepDraft& step) : input_(input), step_(step) {}

  void run() {
    for (const OtherCollective& o : input_.workload.other_collectives)
      if ((input_.in_period + 1) % o.every == 0)
        if (const Handle before = before_place(o); before != kNoTask)
          spots_.push_back({&o, before});
    if (spots_.empty()) return;
    order();
    Handle network = step_.tasks.first(doc::Resource::network);
    for (const Spot& spot : spots_) {
      while (network != kNoTask && goes_before(network, spot))
        network = step_.tasks.behind(network);
      const doc::Task task = task_of(*spot.what);
      const Handle h =
          network == kNoTask ? step_.tasks.append(task) : step_.tasks.insert_before(network, task);
      step_.tasks.wait(h, spot.before);
      step_.tasks.wait(after(spot.before), h);
    }
  }

 private:
  struct Spot {
    const OtherCollective* what;
    Handle before;         // the computation that it waits for
    std::uint32_t at = 0;  // which one that is, from 1 on
  };

  // ---- places in the computation ----

  /// The computation that ends at the place; kNoTask if the step has no such place.
  Handle before_place(const OtherCollective& o) {
    const bool again = !spots_.empty() && spots_.back().what->place == o.place &&
                       spots_.back().what->at_s == o.at_s;
    if (again) return spots_.back().before;
    if (o.place == StepPlace::forward) return until_s(TaskKind::forward, o.at_s);
    if (o.place == StepPlace::backward) return until_s(TaskKind::backward, o.at_s);
    Handle last = kNoTask;  // decoupled: the first step has nothing to apply
    for (Handle h = step_.tasks.first(doc::Resource::compute); h != kNoTask;
         h = step_.tasks.behind(h))
      if (step_.tasks[h].kind == TaskKind::update) last = h;
    return last;
  }

  /// The computation until so much of a pass is over. A task that goes on then becomes two. A
  /// forward task of 6 ms with a collective at 4 ms becomes tasks of 4 and 2 ms. A task that ends
  /// there is cut too, because what its end makes ready, a gradient, comes after the place.
  Handle until_s(TaskKind pass, double at_s) {
    constexpr double kRounding = 1e-9;
    Handle last = kNoTask;
    for (Handle h = step_.tasks.first(doc::Resource::compute); h != kNoTask;
         h = step_.tasks.behind(h)) {
      const doc::Task& task = step_.tasks[h];
      if (task.kind != pass) continue;
      if (at_s <= task.seconds * (1 + kRounding)) return split(h, std::min(at_s, task.seconds));
      at_s -= task.seconds;
      last = h;
    }
    return last;
  }

  /// Cuts a task; returns the first part. The longer part keeps the task's subject. Others wait for
  /// the second part, which keeps the handle.
  Handle split(Handle h, double first_s) {
    doc::Task first = step_.tasks[h];
    doc::Task& second = step_.tasks[h];
    first.seconds = first_s;
    second.seconds -= first_s;
    doc::Task& shorter = first.seconds > second.seconds ? second : first;
    shorter.subject = doc::Subject::none;
    shorter.first = 0, shorter.last = -1;
    return step_.tasks.insert_before(h, first);
  }

  /// The task that has to wait for a collective after `last`. If the step ends there, an empty
  /// tail.
  Handle after(Handle last) {
    const Handle next = step_.tasks.behind(last);
    if (next != kNoTask) return next;
    return step_.tail =
               step_.tasks.append(observed_task(TaskKind::host, step_.operation("tail"), 0));
  }

  // ---- the order on the network ----

  /// Counts for each task the computations that it needs, itself included. A collective at a place
  /// after 3 computations then comes after the network tasks that need at most 3, and before those
  /// that need more. This is the same on every rank, because it comes from the graph alone.
  void order() {
    const doc::TaskGraph& graph = *step_.graph;
    step_.tasks.linearise(*step_.graph);
    needs_.assign(graph.tasks.size(), 0);
    std::array<std::uint32_t, doc::kResourceNames.size()> of_lane{};
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      std::uint32_t& needs = of_lane[to_index(graph.tasks[i].resource)];
      for (const std::uint32_t p : graph.predecessors(i)) needs = std::max(needs, needs_[p]);
      if (graph.tasks[i].resource == doc::Resource::compute) ++needs;
      needs_[i] = needs;
    }
    for (Spot& spot : spots_) spot.at = needs_[step_.tasks.position(spot.before)];
    std::ranges::stable_sort(spots_, {}, &Spot::at);
  }

  /// Whether a task of the network comes before the spot. The second halves of decoupled exchanges
  /// do not: they may wait until the next step.
  bool goes_before(Handle network, const Spot& spot) const {
    const BucketExchange& last = step_.exchanges.back();
    const bool is_second_half = last.receive != last.send && network == last.receive;
    return !is_second_half && needs_[step_.tasks.position(network)] <= spot.at;
  }

  // ---- the collective ----

  doc::Task task_of(const OtherCollective& o) {
    const bool in_parts = o.group > 0 && o.group < input_.ranks;
    const int members = in_parts ? o.group : input_.ranks;
    doc::Payload payload;
    payload.content = doc::Content::other;
    payload.elements = (o.bytes * (o.per_rank ? members : 1) + size_of(payload.dtype) - 1) /
                       size_of(payload.dtype);
    // A block for each rank, of every part.
    const int left = input_.ranks % members;
    const std::int64_t blocks = left > 1 ? std::lcm(members, left) : members;
    payload.padded = (payload.elements + blocks - 1) / blocks * blocks;
    const bool sums =
        o.collective == Collective::all_reduce || o.collective == Collective::reduce_scatter;
    doc::Task task = step_.task_on(step_.add_payload(payload), kind_of(o.collective),
                                   doc::Resource::network, sums ? "sum" : "move");
    if (in_parts) task.group = add_group(members, input_.ranks, *step_.plan);
    if (o.collective == Collective::broadcast) task.root = 0;
    if (o.collective == Collective::all_to_all) task.last = step_.add_payload(payload);
    return task;
  }

  const PassInput& input_;
  StepDraft& step_;
  std::vector<Spot> spots_;           // in the order in which they run
  std::vector<std::uint32_t> needs_;  // by position in the graph
};

}  // namespace

// Timers hold buckets back, as Horovod's cycle does. They run one after the other on the host's
// lane, and the first one is set when backward begins. For ticks at 5 and 10 ms two timers of 5 ms
// each run.
void add_exchanges(const PassInput& input, StepDraft& step) {
  Handle timer = kNoTask;
  double rings_s = 0;
  const auto buckets = step.graph->payloads.size();
  doc::Task send;
  send.kind = input.form.gather ? doc::TaskKind::all_gather : doc::TaskKind::all_reduce;
  send.resource = doc::Resource::network;
  send.subject = doc::Subject::payloads;
  send.operation = step.operation(input.form.gather ? "move" : "sum");
  for (std::size_t b = 0; b < buckets; ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    BucketExchange& exchange = step.exchanges.emplace_back();
    exchange.ready = bucket.flags > 0 ? step.flags_packed : ready_task(input, b, step);
    send.wire = input.form.dtype(bucket.dtype);
    send.first = send.last = static_cast<std::int32_t>(b);
    send.bytes = input.form.bytes(bucket.elements, bucket.dtype, input.ranks);
    exchange.send = exchange.receive = exchange.received = step.tasks.append(send);
    step.tasks.wait(exchange.send, exchange.ready);
    if (input.first_step || step.not_before.empty()) continue;
    const double at_s = step.not_before[b];
    if (!(at_s > ready_s(input, bucket, step))) continue;
    if (at_s != rings_s) {
      const Handle next = step.tasks.append(
          {.operation = step.operation("timer"), .seconds = at_s - rings_s});  // of the host
      step.tasks.wait(next, timer == kNoTask ? step.forward.back() : timer);
      timer = next, rings_s = at_s;
    }
    step.tasks.wait(exchange.send, timer);
  }
}

// In a steady step each copy follows its gradient's backward task. In the first step it is not
// known how many gradients a parameter gets, so all copies come after backward. They stand in the
// order of the buckets, and a bucket leaves once its own copies are done.
void add_collect(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping) return;
  const std::int16_t scale = step.operation("scale");
  if (!input.first_step) {
    const bool nothing_behind = step.backward_end == step.ready.back();
    for (std::size_t p = 0; p < step.ready.size(); ++p) {
      const Handle backward = step.ready[p];
      step.ready[p] = step.tasks.insert_after(
          backward, collect_task(input, static_cast<std::int32_t>(p), scale));
      step.tasks.wait(step.ready[p], backward);
    }
    if (nothing_behind) step.backward_end = step.ready.back();
    return;
  }
  // A parameter may still get another gradient until backward ends. In the order of the buckets,
  // so that one leaves as soon as its own are in.
  for (const std::int32_t p : step.graph->members) {
    const Handle backward = step.backward_end;
    const Handle copy = step.tasks.insert_after(backward, collect_task(input, p, scale));
    step.tasks.wait(copy, backward);
    step.ready[to_index(p)] = step.backward_end = copy;
  }
}

// Steps that train several models in turn: each update needs its exchanges, and lies before the
// next turn's backward.

// The first backward task of a turn waits for the exchanges of the turn before. An example with
// turns 0 and 1: gradients 0 to 3 belong to turn 0 and 4 to 9 to turn 1. The backward task of
// gradient 4 waits for every bucket of turn 0.
void add_turns(const PassInput& input, StepDraft& step) {
  const std::vector<doc::Gradient>& gradients = input.workload.gradients;
  for (std::size_t p = 1; p < gradients.size(); ++p) {
    if (gradients[p].turn == gradients[p - 1].turn) continue;
    for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
      if (turn_of(input, step, b) != gradients[p - 1].turn) continue;
      const BucketExchange& x = step.exchanges[b];
      // What is decoded between computation is there, or comes last in the step.
      const bool on_compute = step.tasks[x.received].resource == doc::Resource::compute;
      step.tasks.wait(step.backward[p], on_compute ? x.receive : x.received);
    }
  }
}

void add_other_collectives(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping && !input.workload.other_collectives.empty())
    OtherCollectives(input, step).run();
}

}  // namespace linerate::plan
