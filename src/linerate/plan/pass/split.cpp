// Decoupled exchanges (Zhang et al. 2023, DeAR): reduce-scatter under backward, all-gather under
// the next forward pass. The updates that wait for an all-gather stand at the head of the step and
// finish the one before.
#include <algorithm>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/pass/compute.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// Puts the updates of the step before into this step's forward pass. An update stands right before
// the first layer that uses one of its bucket's parameters, so it waits for no other all-gather.
class Updates {
 public:
  Updates(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        parts_(parts_of(input.workload)),
        optimizer_(step.operation("optimizer")) {
    const std::size_t buckets = step.exchanges.size();
    step.updates.assign(buckets, kNoTask);
    for (std::size_t b = 0; b < buckets; ++b) total_ += dense_bytes(b);
  }

  void run() {
    // Before the first step nothing waits to be applied.
    if (input_.first_step) return;
    if (layers_are_known())
      in_front_of_layers();
    else
      in_front_of_bucket_shares();
  }

 private:
  const doc::Payload& bucket(std::size_t b) const { return step_.graph->payloads[b]; }
  std::int64_t dense_bytes(std::size_t b) const {
    return bucket(b).elements * size_of(bucket(b).dtype);
  }

  bool layers_are_known() const {
    return every_layer_timed(input_.workload) && gradients_know_layers(input_.workload);
  }

  // Puts a bucket's update before its first use. It takes the optimizer's time by the bucket's
  // share of all bytes.
  void update_before(Handle use, std::size_t b) {
    if (step_.updates[b] != kNoTask) return;
    const double share =
        total_ > 0 ? static_cast<double>(dense_bytes(b)) / static_cast<double>(total_) : 0;
    doc::Task task = observed_task(doc::TaskKind::update, optimizer_, parts_.update_s * share);
    task.subject = doc::Subject::payloads;
    task.first = task.last = static_cast<std::int32_t>(b);
    step_.updates[b] = step_.tasks.insert_before(use, task);
  }

  // `uses` lists which layer needs which bucket. For a layer the buckets go from the last one on,
  // which is the order in which their all-gathers run. An example: bucket 1 has the gradients of
  // layers 0 and 1, and bucket 0 those of layers 1 and 2. Bucket 1 is updated before layer 0 and
  // bucket 0 before layer 1.
  void in_front_of_layers() {
    // By layer, and by bucket from the last one on.
    std::vector<std::pair<std::size_t, std::size_t>> uses;
    uses.reserve(input_.workload.gradients.size());
    for (std::size_t b = step_.exchanges.size(); b-- > 0;)
      for (std::int32_t m = bucket(b).end; m-- > bucket(b).begin;) {
        const std::size_t layer = layer_of(step_.graph->members[to_index(m)]);
        if (uses.empty() || uses.back() != std::pair(layer, b)) uses.emplace_back(layer, b);
      }
    const auto before = [](const auto& x, const auto& y) {
      return x.first != y.first ? x.first < y.first : x.second > y.second;
    };
    // So they stand already if gradients come in the reverse order of layers.
    if (!std::is_sorted(uses.begin(), uses.end(), before))
      std::sort(uses.begin(), uses.end(), before);
    for (const Handle h : step_.forward) {
      const doc::Task task = step_.tasks[h];
      if (task.subject != doc::Subject::layers) continue;
      const auto layer = to_index(task.first);
      auto use = std::lower_bound(uses.begin(), uses.end(), layer,
                                  [](const auto& u, std::size_t l) { return u.first < l; });
      for (; use != uses.end() && use->first == layer; ++use) update_before(h, use->second);
    }
  }

  std::size_t layer_of(std::int32_t position) const {
    return to_index(input_.workload.gradients[to_index(position)].layer);
  }

  // Layers are not timed, so forward is cut by buckets. It runs through them from the last one on.
  // Each takes a share of the pass that is as large as its share of backward.
  void in_front_of_bucket_shares() {
    const double whole = input_.workload.gradients.back().ready_s;
    const doc::Task forward = step_.tasks[step_.forward.front()];
    const Handle behind = step_.forward.back();
    std::vector<Handle> shares;
    for (std::size_t b = step_.exchanges.size(); b-- > 0;) {
      double spent = 0;
      for (std::int32_t m = bucket(b).begin; m < bucket(b).end; ++m) {
        const std::int32_t p = step_.graph->members[to_index(m)];
        spent += ready(p) - ready(p - 1);
      }
      const double share =
          whole > 0 ? spent / whole : 1.0 / static_cast<double>(step_.exchanges.size());
      shares.push_back(step_.tasks.insert_before(
          behind,
          observed_task(doc::TaskKind::forward, forward.operation, parts_.forward_s * share)));
      update_before(shares.back(), b);
    }
    for (const Handle h : step_.forward) step_.tasks.remove(h);
    step_.forward = std::move(shares);
  }

  double ready(std::int32_t position) const {
    return position < 0 ? 0 : input_.workload.gradients[to_index(position)].ready_s;
  }

  const PassInput& input_;
  StepDraft& step_;
  doc::OneRankParts parts_;
  std::int16_t optimizer_;
  std::int64_t total_ = 0;
};

}  // namespace

void pad_to_blocks(doc::Payload& payload, int ranks) {
  payload.padded = (payload.elements + ranks - 1) / ranks * ranks;
}

// Each all-reduce becomes a reduce-scatter in its place, and an all-gather after all of them. The
// all-gathers run from the last bucket on, since the next forward pass begins with its parameters.
void split_exchanges(const PassInput& input, StepDraft& step) {
  if (input.schedule != Schedule::decoupled) return;
  if (input.form.gather)
    throw UsageError(
        "strategy dear: it splits an all-reduce, so payloads must be summable; use "
        "exchange=sum, or another exchange with exchange=gather");
  if (input.codec && !input.codec->is_cast && input.codec->cost.on != doc::CodingPlace::codec)
    throw UsageError(
        "strategy dear: on=compute or on=alone would make the next forward pass wait for every "
        "decode; use on=codec");
  Updates(input, step).run();
  const std::int16_t move = step.operation("move");
  // Forward order: what the next step needs first is gathered first.
  for (std::size_t b = step.exchanges.size(); b-- > 0;) {
    BucketExchange& exchange = step.exchanges[b];
    doc::Payload& bucket = step.graph->payloads[b];
    pad_to_blocks(bucket, input.ranks);
    doc::Task& send = step.tasks[exchange.send];
    send.kind = doc::TaskKind::reduce_scatter;
    send.bytes = bucket.bytes();
    doc::Task gather = send;
    gather.kind = doc::TaskKind::all_gather;
    gather.operation = move;
    exchange.receive = exchange.received = step.tasks.append(gather);
    step.tasks.wait(exchange.receive, exchange.send);
  }
}

}  // namespace linerate::plan
