// The step graph of decoupled exchanges (DeAR). The all-gathers of a step end under the forward
// pass of the next one, so the graph begins with the updates that wait for them.
#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/plan/compute_tasks.hpp"
#include "linerate/plan/step_graph.hpp"

namespace linerate::plan {
namespace {

using doc::TaskKind;

constexpr std::uint32_t kNone = ~0u;

class Builder {
 public:
  Builder(const StepGraphInput& input, doc::TaskGraph& graph)
      : input_(input), graph_(graph), updates_(graph.buckets.size(), kNone) {
    for (std::size_t b = 0; b < graph.buckets.size(); ++b) total_ += dense_bytes(b);
  }

  void build() {
    const StepParts parts = parts_of(input_.workload);
    if (layers_are_known())
      forward_by_layers(parts);
    else
      forward_by_buckets(parts);
    backward_and_scatter();
    if (parts.tail_s > 0) graph_.add(compute_task(TaskKind::host, parts.tail_s));
    gather();
  }

 private:
  std::int64_t dense_bytes(std::size_t b) const {
    return graph_.buckets[b].elements * size_of(graph_.buckets[b].dtype);
  }

  bool layers_are_known() const {
    const auto& w = input_.workload;
    return !w.layers.empty() &&
           std::all_of(w.layers.begin(), w.layers.end(),
                       [](const doc::Layer& l) { return l.forward_s.has_value(); }) &&
           std::all_of(w.gradients.begin(), w.gradients.end(),
                       [](const doc::Gradient& g) { return g.layer >= 0; });
  }

  // Applies a bucket's update just before its first use.
  void update(std::size_t b, double update_s) {
    if (updates_[b] != kNone) return;
    const double share =
        total_ > 0 ? static_cast<double>(dense_bytes(b)) / static_cast<double>(total_) : 0;
    const auto index = static_cast<std::int32_t>(b);
    doc::Task task = compute_task(TaskKind::update, update_s * share, index, index);
    task.origin = doc::Origin::executed;
    updates_[b] = graph_.add(task);
  }

  void forward_by_layers(const StepParts& parts) {
    std::vector<std::vector<std::size_t>> buckets_of(input_.workload.layers.size());
    for (std::size_t b = graph_.buckets.size(); b-- > 0;)
      for (std::int32_t m = graph_.buckets[b].begin; m < graph_.buckets[b].end; ++m)
        buckets_of[layer_of(graph_.members[static_cast<std::size_t>(m)])].push_back(b);
    doc::TaskGraph forward;
    add_forward(input_.workload, parts.forward_s, forward);
    for (const doc::Task& task : forward.tasks) {
      if (task.first == task.last)
        for (const std::size_t b : buckets_of[static_cast<std::size_t>(task.first)])
          update(b, parts.update_s);
      graph_.add(task);
    }
  }

  std::size_t layer_of(std::int32_t position) const {
    return static_cast<std::size_t>(
        input_.workload.gradients[static_cast<std::size_t>(position)].layer);
  }

  // Layers unknown: forward runs through the buckets backwards, each taking a share of the pass as
  // large as its share of backward.
  void forward_by_buckets(const StepParts& parts) {
    const auto ready = [&](std::int32_t position) {
      return position < 0 ? 0
                          : input_.workload.gradients[static_cast<std::size_t>(position)].ready_s;
    };
    const double whole = input_.workload.gradients.back().ready_s;
    for (std::size_t b = graph_.buckets.size(); b-- > 0;) {
      update(b, parts.update_s);
      double spent = 0;
      for (std::int32_t m = graph_.buckets[b].begin; m < graph_.buckets[b].end; ++m) {
        const std::int32_t position = graph_.members[static_cast<std::size_t>(m)];
        spent += ready(position) - ready(position - 1);
      }
      const double share =
          whole > 0 ? spent / whole : 1.0 / static_cast<double>(graph_.buckets.size());
      graph_.add(compute_task(TaskKind::forward, parts.forward_s * share));
    }
  }

  void backward_and_scatter() {
    const auto positions = static_cast<std::int32_t>(input_.workload.gradients.size());
    std::int32_t computed = 0;
    for (std::size_t b = 0; b < graph_.buckets.size(); ++b) {
      const doc::Bucket& bucket = graph_.buckets[b];
      const std::int32_t until = 1 + *std::max_element(graph_.members.begin() + bucket.begin,
                                                       graph_.members.begin() + bucket.end);
      if (until > computed) {
        add_backward(input_.workload, computed, until, graph_);
        computed = until;
        last_backward_ = static_cast<std::uint32_t>(graph_.tasks.size() - 1);
      }
      // A bucket whose gradients came earlier waits for the later ones in front of it: they are in
      // the same queue anyway.
      std::uint32_t ready = last_backward_;
      if (input_.codec) ready = add_codec(TaskKind::encode, b, ready);
      graph_.add(exchange(TaskKind::reduce_scatter, b), ready);
      scatters_.push_back(static_cast<std::uint32_t>(graph_.tasks.size() - 1));
    }
    if (computed < positions) add_backward(input_.workload, computed, positions, graph_);
    add_backward_rest(input_.workload, graph_);
  }

  // Forward order: what the next step needs first is gathered first.
  void gather() {
    for (std::size_t b = graph_.buckets.size(); b-- > 0;) {
      std::uint32_t done = graph_.add(exchange(TaskKind::all_gather, b), scatters_[b]);
      if (input_.codec) done = add_codec(TaskKind::decode, b, done);
      graph_.next_step.push_back({done, updates_[b]});
    }
  }

  doc::Task exchange(TaskKind kind, std::size_t b) const {
    const doc::Bucket& bucket = graph_.buckets[b];
    doc::Task task;
    task.kind = kind;
    task.resource = doc::Resource::network;
    task.wire = input_.payload.dtype(bucket.dtype);
    task.first = task.last = static_cast<std::int32_t>(b);
    task.bytes = input_.payload.bytes(bucket.elements, bucket.dtype, input_.ranks);
    return task;
  }

  std::uint32_t add_codec(TaskKind kind, std::size_t b, std::uint32_t after) {
    doc::Task task;
    task.kind = kind;
    task.resource = doc::Resource::codec;
    task.first = task.last = static_cast<std::int32_t>(b);
    task.cost_key = 0;
    task.bytes = dense_bytes(b);
    task.seconds = kind == TaskKind::encode ? input_.codec->encode_s(task.bytes)
                                            : input_.codec->decode_s(task.bytes);
    return graph_.add(task, after);
  }

  const StepGraphInput& input_;
  doc::TaskGraph& graph_;
  std::vector<std::uint32_t> updates_;   // [buckets]
  std::vector<std::uint32_t> scatters_;  // [buckets]
  std::uint32_t last_backward_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

void build_decoupled(const StepGraphInput& input, doc::TaskGraph& graph) {
  if (input.payload.gather)
    throw UsageError(
        "strategy dear: it splits an all-reduce, so payloads must be summable; use "
        "exchange=sum, or another exchange with exchange=gather");
  if (input.codec && input.codec->resource == doc::Resource::compute)
    throw UsageError(
        "strategy dear: on=compute would hold the next forward pass behind every "
        "decode; use on=codec");
  Builder(input, graph).build();
}

}  // namespace linerate::plan
