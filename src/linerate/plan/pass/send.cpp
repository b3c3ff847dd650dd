// One collective a bucket. Their order on the network is that of the buckets, on every rank.
#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// The task after which every gradient of a bucket is in place. Backward runs in order, so it is the
// task of the last position.
Handle last_gradient(const doc::Payload& bucket, const StepDraft& step) {
  const auto& members = step.graph->members;
  const std::int32_t last =
      *std::max_element(members.begin() + bucket.begin, members.begin() + bucket.end);
  return step.ready[to_index(last)];
}

// In the first step gradients are collected bucket by bucket, after backward.
Handle collected_last(const doc::Payload& bucket, const StepDraft& step) {
  const std::int32_t last = step.graph->members[to_index(bucket.end) - 1];
  return step.ready[to_index(last)];
}

// The end of backward. For a bucket of a turn that another one follows, it is the turn's last
// gradient.
Handle backward_end(const PassInput& input, std::int32_t bucket, const StepDraft& step) {
  const auto& gradients = input.workload.gradients;
  const int turn = turn_of(input, step, bucket);
  if (turn == gradients.back().turn) return step.backward_end;
  const auto next = std::ranges::upper_bound(gradients, turn, {}, &doc::Gradient::turn);
  return step.ready[to_index(next - gradients.begin() - 1)];
}

// The task that the bucket's collective waits for, by schedule and kind of step.
Handle ready_task(const PassInput& input, std::int32_t b, const StepDraft& step) {
  const doc::Payload& bucket = step.graph->payloads[to_index(b)];
  if (input.first_step)
    return input.housekeeping ? collected_last(bucket, step) : backward_end(input, b, step);
  if (input.schedule == Schedule::at_the_end) return backward_end(input, b, step);
  return last_gradient(bucket, step);
}

// Timers that hold buckets back, as Horovod's cycle does. They run one after the other on the
// host's lane, and the first one is set when backward begins. For ticks at 5 and 10 ms two timers
// of 5 ms each run.
class Timers {
 public:
  Timers(StepDraft& step) : step_(step) {}

  // Nothing unless `at_s` is later than the gradient itself.
  Handle until(double at_s, double ready_s) {
    if (!(at_s > ready_s)) return kNoTask;
    if (at_s == last_s_) return last_;
    doc::Task timer;
    timer.kind = doc::TaskKind::host;
    timer.resource = doc::Resource::host;
    timer.operation = step_.operation("timer");
    timer.seconds = at_s - last_s_;
    const Handle h = step_.tasks.append(timer);
    step_.tasks.wait(h, last_ == kNoTask ? step_.forward.back() : last_);
    last_s_ = at_s;
    return last_ = h;
  }

 private:
  StepDraft& step_;
  Handle last_ = kNoTask;
  double last_s_ = 0;
};

double ready_s(const PassInput& input, const doc::Payload& bucket, const StepDraft& step) {
  double latest = 0;
  for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
    latest = std::max(latest,
                      input.workload.gradients[to_index(step.graph->members[to_index(m)])].ready_s);
  return latest;
}

}  // namespace

void add_exchanges(const PassInput& input, StepDraft& step) {
  Timers timers(step);
  const auto buckets = step.graph->payloads.size();
  doc::Task send;
  send.kind = input.form.gather ? doc::TaskKind::all_gather : doc::TaskKind::all_reduce;
  send.resource = doc::Resource::network;
  send.subject = doc::Subject::payloads;
  send.operation = step.operation(input.form.gather ? "move" : "sum");
  for (std::size_t b = 0; b < buckets; ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    BucketExchange& exchange = step.exchanges.emplace_back();
    exchange.ready = bucket.flags > 0 ? step.flags_packed
                                      : ready_task(input, static_cast<std::int32_t>(b), step);
    send.wire = input.form.dtype(bucket.dtype);
    send.first = send.last = static_cast<std::int32_t>(b);
    send.bytes = input.form.bytes(bucket.elements, bucket.dtype, input.ranks);
    exchange.send = exchange.receive = exchange.received = step.tasks.append(send);
    step.tasks.wait(exchange.send, exchange.ready);
    if (input.first_step || step.not_before.empty()) continue;
    const Handle timer = timers.until(step.not_before[b], ready_s(input, bucket, step));
    if (timer != kNoTask) step.tasks.wait(exchange.send, timer);
  }
}

}  // namespace linerate::plan
