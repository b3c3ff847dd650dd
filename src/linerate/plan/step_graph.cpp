#include "linerate/plan/step_graph.hpp"

#include <algorithm>

#include "linerate/plan/compute_tasks.hpp"

namespace linerate::plan {
namespace {

using doc::TaskKind;

class Builder {
 public:
  Builder(const StepGraphInput& input, doc::TaskGraph& graph) : input_(input), graph_(graph) {}

  void build(Schedule schedule) {
    const StepParts parts = parts_of(input_.workload);
    const auto positions = static_cast<std::int32_t>(input_.workload.gradients.size());
    const auto buckets = static_cast<std::int32_t>(graph_.buckets.size());
    graph_.tasks.reserve(static_cast<std::size_t>(positions + 4 * buckets) +
                         input_.workload.layers.size() + 5);
    add_forward(input_.workload, parts.forward_s, graph_);
    backward_ = static_cast<std::uint32_t>(graph_.tasks.size());
    if (schedule == Schedule::at_the_end) compute_until(positions, true);
    for (std::int32_t b = 0; b < buckets; ++b) {
      if (schedule == Schedule::overlapped) compute_until(needed_by(b), false);
      send(b, schedule);
    }
    if (schedule == Schedule::overlapped) compute_until(positions, true);
    decode_on_compute();
    finish(parts, buckets);
  }

 private:
  // The gradients that must be ready before bucket b is complete.
  std::int32_t needed_by(std::int32_t b) const {
    const doc::Bucket& bucket = graph_.buckets[static_cast<std::size_t>(b)];
    return 1 + *std::max_element(graph_.members.begin() + bucket.begin,
                                 graph_.members.begin() + bucket.end);
  }

  void compute_until(std::int32_t position, bool all) {
    if (position > computed_) {
      add_backward(input_.workload, computed_, position, graph_);
      computed_ = position;
      last_compute_ = static_cast<std::uint32_t>(graph_.tasks.size() - 1);
    }
    if (!all) return;
    add_backward_rest(input_.workload, graph_);
    last_compute_ = static_cast<std::uint32_t>(graph_.tasks.size() - 1);
  }

  // Encodes on the compute resource stand between backward tasks, so positions no longer give
  // indices: the bucket's last gradient is looked for from the end of what was added.
  std::uint32_t ready_task(std::int32_t b, Schedule schedule) const {
    if (schedule == Schedule::at_the_end) return last_compute_;
    const std::int32_t position = needed_by(b) - 1;
    for (std::uint32_t i = last_compute_; i > backward_; --i)
      if (graph_.tasks[i].kind == TaskKind::backward && graph_.tasks[i].first <= position) return i;
    return backward_;
  }

  void send(std::int32_t b, Schedule schedule) {
    const doc::Bucket& bucket = graph_.buckets[static_cast<std::size_t>(b)];
    const std::int64_t dense = bucket.elements * size_of(bucket.dtype);
    std::uint32_t ready = ready_task(b, schedule);
    if (!input_.not_before.empty()) ready = wait_until(b, ready);
    if (input_.codec) {
      ready =
          graph_.add(codec_task(TaskKind::encode, b, dense, input_.codec->encode_s(dense)), ready);
      if (input_.codec->resource == doc::Resource::compute) last_compute_ = ready;
    }
    doc::Task exchange;
    exchange.kind = input_.payload.gather ? TaskKind::all_gather : TaskKind::all_reduce;
    exchange.resource = doc::Resource::network;
    exchange.wire = input_.payload.dtype(bucket.dtype);
    exchange.first = exchange.last = b;
    exchange.bytes = input_.payload.bytes(bucket.elements, bucket.dtype, input_.ranks);
    last_exchange_ = graph_.add(exchange, ready);
    if (!input_.codec) return;
    doc::Task decode = codec_task(TaskKind::decode, b, dense, decode_seconds(dense));
    if (input_.codec->resource == doc::Resource::compute)
      decodes_.emplace_back(decode, last_exchange_);
    else
      last_exchange_ = graph_.add(decode, last_exchange_);
  }

  double decode_seconds(std::int64_t dense) const {
    return input_.codec->decode_s(dense) * (input_.payload.gather ? input_.ranks : 1);
  }

  doc::Task codec_task(TaskKind kind, std::int32_t b, std::int64_t bytes, double seconds) const {
    doc::Task task;
    task.kind = kind;
    task.resource = input_.codec->resource;
    task.first = task.last = b;
    task.cost_key = 0;
    task.bytes = bytes;
    task.seconds = seconds;
    return task;
  }

  // A timer holds the bucket back, as Horovod's cycle does.
  std::uint32_t wait_until(std::int32_t b, std::uint32_t ready) {
    const double at = input_.workload.gradients[static_cast<std::size_t>(needed_by(b)) - 1].ready_s;
    const double wait = input_.not_before[static_cast<std::size_t>(b)] - at;
    if (!(wait > 0)) return ready;
    doc::Task timer;
    timer.kind = TaskKind::host;
    timer.resource = doc::Resource::host;
    timer.first = timer.last = b;
    timer.seconds = wait;
    return graph_.add(timer, ready);
  }

  // In plan order a decode would hold back the backward tasks behind it: they come first.
  void decode_on_compute() {
    for (const auto& [task, after] : decodes_) last_compute_ = graph_.add(task, after);
  }

  void finish(const StepParts& parts, std::int32_t buckets) {
    doc::Task update = compute_task(TaskKind::update, parts.update_s, 0, buckets - 1);
    update.origin = doc::Origin::executed;
    graph_.add(update, last_compute_);
    if (buckets > 0) graph_.add_predecessor_to_last(last_exchange_);
    if (parts.tail_s > 0) graph_.add(compute_task(TaskKind::host, parts.tail_s));
  }

  const StepGraphInput& input_;
  doc::TaskGraph& graph_;
  std::vector<std::pair<doc::Task, std::uint32_t>> decodes_;
  std::int32_t computed_ = 0;
  std::uint32_t backward_ = 0;       // where the backward tasks begin
  std::uint32_t last_compute_ = 0;   // backward or codec work added last
  std::uint32_t last_exchange_ = 0;  // or its decode
};

}  // namespace

void build_overlapped(const StepGraphInput& input, Schedule schedule, doc::TaskGraph& graph) {
  Builder(input, graph).build(schedule);
}

}  // namespace linerate::plan
