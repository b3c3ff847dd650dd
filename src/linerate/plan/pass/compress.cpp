// Compressors: a bucket's tensors are encoded, exchanged in one round or several, and decoded back
// into the bucket. What compression does not pay for travels dense, beside them.
#include <algorithm>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

using compress::BucketLayout;
using compress::BucketRound;
using compress::Combine;

class Compressing {
 public:
  Compressing(const PassInput& input, StepDraft& step)
      : input_(input), step_(step), buckets_(step.exchanges.size()) {
    for (std::size_t b = 0; b < buckets_; ++b) {
      layouts_.push_back(
          input.compression->layout_of(input.workload, *step.graph, step.graph->payloads[b]));
      rounds_ = std::max(rounds_, layouts_.back().rounds.size());
    }
    last_.assign(buckets_, kNoTask);
    dense_.assign(buckets_, kNoTask);
  }

  /// While a round of one bucket travels, the next bucket's round before is encoded.
  void run() {
    if (rounds_ == 0) return;
    if (input_.schedule == Schedule::decoupled) check_decoupled();
    keep_units();
    for (std::size_t stage = 0; stage < buckets_ + rounds_; ++stage) {
      if (stage < buckets_) network_ = step_.exchanges[stage].send;
      for (std::size_t r = 0; r < rounds_ && r <= stage; ++r)
        if (stage - r < buckets_ && r < layouts_[stage - r].rounds.size()) encode(stage - r, r);
      if (stage >= rounds_ && input_.schedule != Schedule::decoupled) decode(stage - rounds_);
    }
    if (input_.schedule == Schedule::decoupled)
      for (std::size_t b = buckets_; b-- > 0;) decode(b);
  }

 private:
  void check_decoupled() const {
    for (const BucketLayout& layout : layouts_)
      if (layout.is_coded() &&
          (layout.rounds.size() > 1 || layout.rounds.front().combine != Combine::sum ||
           layout.has_dense_payload()))
        throw UsageError(
            "strategy dear: it splits one all-reduce, so a compressor's payloads must be summed, "
            "in one round: fp16, bf16, randomk or acpsgd; or take another exchange");
  }

  /// Gradients of a bucket that is encoded are not divided by the ranks before.
  void keep_units() {
    if (!input_.housekeeping) return;
    const std::int16_t scale = step_.plan->operation(scale_in_gradient_units());
    for (std::size_t b = 0; b < buckets_; ++b) {
      if (!layouts_[b].is_coded()) continue;
      const doc::Payload& bucket = step_.graph->payloads[b];
      for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
        const auto position =
            static_cast<std::size_t>(step_.graph->members[static_cast<std::size_t>(m)]);
        step_.tasks[step_.ready[position]].operation = scale;
      }
    }
  }

  void encode(std::size_t b, std::size_t r) {
    const Handle h = step_.tasks.append(codec_task(doc::TaskKind::encode, b, r));
    const std::int32_t payload = add_payload(b, layouts_[b].rounds[r]);
    if (r == 0) {
      step_.last_checked = h;
      BucketExchange& x = step_.exchanges[b];
      step_.tasks.wait(h, x.ready);
      step_.tasks.wait_instead(x.send, x.ready, h);
      move_instead(x.send, payload, layouts_[b].rounds[r]);
      if (x.receive != x.send) move_instead(x.receive, payload, layouts_[b].rounds[r]);
      last_[b] = x.receive;
      if (layouts_[b].has_dense_payload()) send_dense(b, h);
    } else {
      step_.tasks.wait(h, last_[b]);
      last_[b] = send(payload, layouts_[b].rounds[r], h);
    }
  }

  void send_dense(std::size_t b, Handle encoded) {
    const BucketRound round{Combine::sum, DType::f32, layouts_[b].dense_elements};
    dense_[b] = send(add_payload(b, round), round, encoded);
  }

  Handle send(std::int32_t payload, const BucketRound& round, Handle encoded) {
    doc::Task task;
    task.resource = doc::Resource::network;
    task.subject = doc::Subject::payloads;
    network_ = step_.tasks.insert_after(network_, task);
    move_instead(network_, payload, round);
    step_.tasks.wait(network_, encoded);
    return network_;
  }

  /// Of a collective: it moves this payload. The halves of a decoupled one stay what they are.
  void move_instead(Handle collective, std::int32_t payload, const BucketRound& round) {
    doc::Task& t = step_.tasks[collective];
    t.first = t.last = payload;
    t.wire = round.dtype;
    t.bytes = step_.graph->payloads[static_cast<std::size_t>(payload)].bytes();
    if (input_.schedule == Schedule::decoupled) return;
    const bool gathers = round.combine == Combine::gather;
    t.kind = gathers ? doc::TaskKind::all_gather : doc::TaskKind::all_reduce;
    t.operation = step_.plan->operation({gathers ? "move" : "sum", {}});
  }

  std::int32_t add_payload(std::size_t b, const BucketRound& round) {
    doc::Payload p;
    p.content = doc::Content::encoded;
    p.of = static_cast<std::int32_t>(b);
    p.dtype = round.dtype;
    p.elements = round.elements;
    p.padded = round.combine == Combine::gather ? round.elements * input_.ranks : round.elements;
    if (input_.schedule == Schedule::decoupled) pad_to_blocks(p, input_.ranks);
    step_.graph->payloads.push_back(p);
    return static_cast<std::int32_t>(step_.graph->payloads.size() - 1);
  }

  void decode(std::size_t b) {
    if (!layouts_[b].is_coded()) return;
    const Handle h = step_.tasks.append(codec_task(doc::TaskKind::decode, b, 0));
    step_.tasks.wait(h, last_[b]);
    if (dense_[b] != kNoTask) step_.tasks.wait(h, dense_[b]);
    step_.exchanges[b].received = h;
  }

  doc::Task codec_task(doc::TaskKind kind, std::size_t b, std::size_t r) const {
    const BucketLayout& layout = layouts_[b];
    const std::int64_t dense = layout.coded_elements() * size_of(DType::f32);
    const bool gathers = layout.rounds.back().combine == Combine::gather;
    doc::Component operation = input_.compression->operation;
    if (layout.rounds.size() > 1 && kind == doc::TaskKind::encode)
      operation.options.emplace_back(compress::kRoundOption, std::to_string(r));
    doc::Task t;
    t.kind = kind;
    t.resource = doc::Resource::codec;
    t.subject = doc::Subject::payloads;
    t.operation = step_.plan->operation(operation);
    t.first = t.last = static_cast<std::int32_t>(b);
    t.bytes = dense;
    t.seconds = kind == doc::TaskKind::encode
                    ? input_.compression->encode_s(dense, layout.rounds.size())
                    : input_.compression->decode_s(dense) * (gathers ? input_.ranks : 1);
    return t;
  }

  const PassInput& input_;
  StepDraft& step_;
  std::size_t buckets_, rounds_ = 0;
  std::vector<BucketLayout> layouts_;  // by bucket
  std::vector<Handle> last_, dense_;   // by bucket: its last round's collective; the dense one's
  Handle network_ = kNoTask;           // behind it stands the next collective that is inserted
};

}  // namespace

void add_compression(const PassInput& input, StepDraft& step) {
  if (input.compression) Compressing(input, step).run();
}

}  // namespace linerate::plan
