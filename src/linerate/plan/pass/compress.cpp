// Codecs, casts and compressors: a bucket is encoded, exchanged in one round or several, and
// decoded back into the bucket. Tensors that compression does not pay for travel dense with them.
#include <algorithm>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/compression.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

using compress::BucketRound;
using compress::Combine;

/// The collective after an encode. `payload` is what it moves, and `into` what it fills, for an
/// all-to-all.
struct CodedTransfer {
  std::int32_t payload = -1, into = -1;  // `into` of an all-to-all
  std::int32_t counts = -1;              // of its parts, if their sizes are not known
  DType dtype = DType::u8;
  Combine combine = Combine::gather;
  std::int64_t expected = 0;  // bytes, of a bound
};

struct CodedExchange {
  BucketCoding coding;                   // by a compressor
  std::vector<CodedTransfer> transfers;  // one an encode, in order; none: the bucket stays as it is
  std::int32_t dense = -1;               // payload
  Handle last = kNoTask;                 // the collective of the round sent last
  Handle dense_sent = kNoTask;
};

// Puts the encodes, collectives and decodes of all buckets into the step. A codec or a cast has one
// round. A compressor may need several: PowerSGD sums one factor, encodes with the sum, and sums
// the other factor.
class Coding {
 public:
  Coding(const PassInput& input, StepDraft& step)
      : input_(input), step_(step), codec_(input.codec), buckets_(step.exchanges.size()) {
    if (codec_) operation_ = step.plan->operation(codec_->operation);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!codec_) buckets_[b].coding = input.compression->coding_of(input, *step.graph, bucket(b));
      add_payloads(b);
      rounds_ = std::max(rounds_, buckets_[b].transfers.size());
    }
  }

  /// While a round of one bucket travels, the next bucket's round before is encoded. With three
  /// buckets and two rounds the coding lane runs these stages:
  ///
  ///   stage 0   encode bucket 0, round 0
  ///   stage 1   encode bucket 1, round 0; encode bucket 0, round 1
  ///   stage 2   encode bucket 2, round 0; encode bucket 1, round 1; decode bucket 0
  ///   stage 3   encode bucket 2, round 1; decode bucket 1
  ///   stage 4   decode bucket 2
  /// Bucket 0's round 1 waits for the sum of its round 0, which travels while bucket 1 is encoded.
  /// The last bucket of a turn is decoded before the next turn's first encode, because that turn's
  /// gradients come after the decode. Decoupled exchanges decode at the end, in the order in which
  /// the next step needs the buckets.
  void run() {
    if (rounds_ == 0) return;
    keep_units();
    const std::size_t count = buckets_.size();
    const bool decoupled = input_.schedule == Schedule::decoupled;
    for (std::size_t stage = 0; stage < count + rounds_; ++stage) {
      const bool new_turn = stage < count && begins_turn(stage);
      if (new_turn) decode_later(stage - 1);
      if (stage < count) begin(stage);
      for (std::size_t r = 0; r < rounds_ && r <= stage; ++r)
        if (stage - r < count && r < buckets_[stage - r].transfers.size() && !is_alone(stage - r))
          encode(stage - r, r);
      if (stage >= rounds_ && !decoupled && !new_turn) decode_later(stage - rounds_);
    }
    if (decoupled)
      for (std::size_t b = count; b-- > 0;) decode(b);
  }

 private:
  const doc::Payload& bucket(std::size_t b) const { return step_.graph->payloads[b]; }
  bool is_coded(std::size_t b) const { return !buckets_[b].transfers.empty(); }
  /// Compressors refuse turns.
  bool begins_turn(std::size_t b) const {
    return b > 0 && turn_of(input_, step_, b) != turn_of(input_, step_, b - 1);
  }

  /// A bucket that a compressor encodes keeps its gradients in their own units. The mean is taken
  /// after the decode.
  void keep_units() {
    if (!input_.housekeeping || codec_) return;
    const std::int16_t scale = step_.plan->operation(scale_in_gradient_units());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!is_coded(b)) continue;
      for (const std::int32_t p : members_of(*step_.graph, bucket(b)))
        step_.tasks[step_.ready[to_index(p)]].operation = scale;
    }
  }

  // ---- payloads: of the rounds, then the dense one ----

  void add_payloads(std::size_t b) {
    CodedExchange& x = buckets_[b];
    if (codec_) {
      if (!input_.form.is_plain(bucket(b).dtype)) x.transfers = {transfer_by_codec(b)};
      return;
    }
    if (!x.coding.is_coded()) return;
    if (x.coding.has_owners())
      add_two_phase(b);
    else
      for (const BucketRound& round : x.coding.layout.rounds)
        x.transfers.push_back(transfer_of(b, round));
    if (x.coding.layout.has_dense_payload())
      x.dense = add_payload(b, DType::f32, x.coding.layout.dense_elements, 1);
  }

  CodedTransfer transfer_by_codec(std::size_t b) {
    const WireForm& form = input_.form;
    doc::Payload p = bucket(b);
    CodedTransfer t;
    t.dtype = form.dtype(p.dtype);
    t.combine = form.gather ? Combine::gather : Combine::sum;
    p.content = doc::Content::encoded;
    p.of = static_cast<std::int32_t>(b);
    p.begin = p.end = 0;
    p.dtype = t.dtype;
    if (!codec_->is_cast) {
      const std::int64_t dense = p.elements;
      p.elements = form.bytes(dense, bucket(b).dtype, 1);
      p.padded = form.bytes(dense, bucket(b).dtype, input_.ranks);
      p.dtype = DType::u8;
      if (input_.schedule == Schedule::decoupled) pad_to_blocks(p, input_.ranks);
    }
    t.payload = step_.add_payload(p);
    return t;
  }

  CodedTransfer transfer_of(std::size_t b, const BucketRound& round) {
    CodedTransfer t;
    t.dtype = round.dtype;
    t.combine = round.combine;
    const bool gathers = round.combine == Combine::gather;
    t.payload = add_payload(b, round.dtype, round.elements, gathers ? input_.ranks : 1);
    if (!gathers || !round.tells_sizes) return t;
    t.expected = std::min(round.expected, round.elements) * size_of(round.dtype) * input_.ranks;
    t.counts = step_.add_payload({.content = doc::Content::counts,
                                  .dtype = DType::i64,
                                  .of = t.payload,
                                  .elements = 1,
                                  .padded = input_.ranks});
    return t;
  }

  void add_two_phase(std::size_t b) {
    CodedExchange& x = buckets_[b];
    const std::int64_t block = x.coding.chunks.block_bytes;
    const std::int32_t to_owners = add_payload(b, DType::u8, block * input_.ranks, 1);
    const std::int32_t into = add_payload(b, DType::u8, block * input_.ranks, 1);
    x.transfers = {{.payload = to_owners, .into = into},
                   {.payload = add_payload(b, DType::u8, block, input_.ranks)}};
  }

  std::int32_t add_payload(std::size_t b, DType dtype, std::int64_t elements, int times) {
    doc::Payload p{.content = doc::Content::encoded,
                   .dtype = dtype,
                   .of = static_cast<std::int32_t>(b),
                   .elements = elements,
                   .padded = elements * times};
    if (input_.schedule == Schedule::decoupled) pad_to_blocks(p, input_.ranks);
    return step_.add_payload(p);
  }

  // ---- tasks ----

  doc::CodingPlace place_of(std::size_t b) const {
    if (codec_) return coding_place(input_, codec_->cost.on);
    const Method* const method = buckets_[b].coding.method;
    return coding_place(input_,
                        method && method->cost ? method->cost->on : doc::CodingPlace::codec);
  }
  bool is_alone(std::size_t b) const { return place_of(b) == doc::CodingPlace::alone; }

  /// Starts a bucket. If coding holds up the computation (CodingPlace::alone), the bucket goes its
  /// whole way at once, before the next one begins.
  void begin(std::size_t b) {
    network_ = step_.exchanges[b].send;
    if (!is_alone(b)) return;
    for (std::size_t r = 0; r < buckets_[b].transfers.size(); ++r) encode(b, r);
    decode(b);
    step_.exchanges[b].sent_last = network_;
  }

  /// Puts a coding task into its lane. On the computing device a task that waits for a collective
  /// comes last; otherwise it would hold up backward.
  Handle put(std::size_t b, const doc::Task& task, bool waits) {
    if (place_of(b) == doc::CodingPlace::codec) return step_.tasks.append(task);
    return waits && !is_alone(b) ? step_.append_compute(task) : step_.put_into_compute(task, b);
  }

  // The first round takes over the bucket's collective. Later rounds send collectives of their own,
  // each after the one before.
  void encode(std::size_t b, std::size_t r) {
    CodedExchange& x = buckets_[b];
    const Handle h = put(b, encode_task(b, r), r > 0);
    if (r == 0) {
      if (!codec_) step_.last_checked = h;
      BucketExchange& exchange = step_.exchanges[b];
      step_.tasks.wait(h, exchange.ready);
      step_.tasks.wait_instead(exchange.send, exchange.ready, h);
      exchange.counts = send_counts(x.transfers[0], exchange.send, h);
      move_instead(exchange.send, x.transfers[0]);
      if (exchange.receive != exchange.send) move_instead(exchange.receive, x.transfers[0]);
      x.last = exchange.receive;
      if (x.dense >= 0) x.dense_sent = send({x.dense, -1, -1, DType::f32, Combine::sum, 0}, h);
    } else {
      step_.tasks.wait(h, x.last);
      x.last = send(x.transfers[r], h);
    }
  }

  /// move_instead() says what it moves.
  static doc::Task empty_collective() {
    return {.resource = doc::Resource::network, .subject = doc::Subject::payloads};
  }

  /// Adds an exchange of counts before the collective, if ranks send different numbers of bytes.
  Handle send_counts(const CodedTransfer& t, Handle collective, Handle encoded) {
    if (t.counts < 0) return kNoTask;
    const Handle h = step_.tasks.insert_before(collective, empty_collective());
    move_instead(h, {t.counts, -1, -1, DType::i64, Combine::gather, 0});
    step_.tasks.wait(h, encoded);
    step_.tasks.wait(collective, h);
    return h;
  }

  Handle send(const CodedTransfer& transfer, Handle encoded) {
    network_ = step_.tasks.insert_after(network_, empty_collective());
    move_instead(network_, transfer);
    step_.tasks.wait(network_, encoded);
    return network_;
  }

  /// Makes a collective move this payload. The halves of a decoupled one keep their kinds.
  void move_instead(Handle collective, const CodedTransfer& transfer) {
    doc::Task& t = step_.tasks[collective];
    t.first = transfer.payload;
    t.last = transfer.into >= 0 ? transfer.into : transfer.payload;
    t.wire = transfer.dtype;
    t.bytes = step_.graph->payloads[to_index(transfer.payload)].bytes();
    t.bound = transfer.counts >= 0;
    t.expected = transfer.expected;
    if (input_.schedule == Schedule::decoupled) return;
    const bool gathers = transfer.combine == Combine::gather;
    t.kind = transfer.into >= 0     ? doc::TaskKind::all_to_all
             : transfer.counts >= 0 ? doc::TaskKind::all_gather_v
             : gathers              ? doc::TaskKind::all_gather
                                    : doc::TaskKind::all_reduce;
    t.operation = step_.operation(gathers ? "move" : "sum");
  }

  /// Puts a bucket's decode into the step, unless the bucket went its whole way at once.
  void decode_later(std::size_t b) {
    if (!is_alone(b)) decode(b);
  }

  // Puts the bucket's decode into the step. It waits for the last round and for the dense part. If
  // payloads were gathered, a rank decodes those of all ranks.
  void decode(std::size_t b) {
    CodedExchange& x = buckets_[b];
    if (!is_coded(b)) return;
    const bool reads_all = !x.coding.two_phase && x.transfers.back().combine == Combine::gather;
    const doc::CodedTensors coded = coded_of(b);
    doc::Task task = codec_task(doc::TaskKind::decode, b, 0, coded);
    task.seconds = (codec_ ? codec_->cost.decode_s(coded) : x.coding.method->decode_s(coded)) *
                   (reads_all ? input_.ranks : 1);
    const Handle h = put(b, task, true);
    step_.tasks.wait(h, x.last);
    if (x.dense_sent != kNoTask) step_.tasks.wait(h, x.dense_sent);
    step_.exchanges[b].received = h;
  }

  doc::Task encode_task(std::size_t b, std::size_t r) const {
    const BucketCoding& coding = buckets_[b].coding;
    const doc::CodedTensors coded = coded_of(b);
    doc::Task task = codec_task(doc::TaskKind::encode, b, r, coded);
    if (codec_)
      task.seconds = codec_->cost.encode_s(coded);
    else if (!coding.has_owners())
      task.seconds =
          coding.method->encode_s(coded) / static_cast<double>(coding.layout.rounds.size());
    else if (r == 0)
      task.seconds = coding.method->encode_s(coded);
    else  // an owner's: the others' payloads of 1/ranks, and their mean
      task.seconds =
          coding.method->decode_s(coded) + coding.method->encode_s(coding.part_of(input_.ranks));
    return task;
  }

  doc::Task codec_task(doc::TaskKind kind, std::size_t b, std::size_t r,
                       const doc::CodedTensors& coded) const {
    const BucketCoding& coding = buckets_[b].coding;
    const auto at = static_cast<std::int32_t>(b);
    doc::Task t = compute_task(kind, operation_, doc::Subject::payloads, at, at);
    if (place_of(b) == doc::CodingPlace::codec) t.resource = doc::Resource::codec;
    if (!codec_)
      t.operation = step_.plan->operation(compress::CodingStep{
          coding.method->component, static_cast<int>(r), input_.phase, coding.two_phase}
                                              .to_operation());
    t.bytes = coded.bytes;
    return t;
  }

  doc::CodedTensors coded_of(std::size_t b) const {
    if (!codec_) return buckets_[b].coding.coded();
    return {bucket(b).elements * size_of(bucket(b).dtype), bucket(b).end - bucket(b).begin};
  }

  const PassInput& input_;
  StepDraft& step_;
  const CodecModel* codec_;      // null: a compressor codes
  std::int16_t operation_ = -1;  // the codec's
  std::vector<CodedExchange> buckets_;
  std::size_t rounds_ = 0;
  Handle network_ = kNoTask;  // the next collective is inserted after it
};

// Decoupled exchanges (Zhang et al. 2023, DeAR): reduce-scatter under backward, all-gather under
// the next forward pass. The updates that wait for an all-gather stand at the head of the step and
// finish the one before.

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
    if (layers_are_timed(input_.workload))
      in_front_of_layers();
    else
      in_front_of_bucket_shares();
  }

 private:
  const doc::Payload& bucket(std::size_t b) const { return step_.graph->payloads[b]; }
  std::int64_t dense_bytes(std::size_t b) const {
    return bucket(b).elements * size_of(bucket(b).dtype);
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

  // `used_by` lists the buckets that a layer needs, from the last one on. Their all-gathers run in
  // this order. An example: bucket 1 has the gradients of layers 0 and 1, and bucket 0 those of
  // layers 1 and 2. Bucket 1 is updated before layer 0 and bucket 0 before layer 1.
  void in_front_of_layers() {
    std::vector<std::vector<std::size_t>> used_by(input_.workload.layers.size());
    for (std::size_t b = step_.exchanges.size(); b-- > 0;)
      for (const std::int32_t p : members_of(*step_.graph, bucket(b))) {
        auto& buckets = used_by[to_index(input_.workload.gradients[to_index(p)].layer)];
        if (buckets.empty() || buckets.back() != b) buckets.push_back(b);
      }
    for (const Handle h : step_.forward) {
      const doc::Task task = step_.tasks[h];
      if (task.subject != doc::Subject::layers) continue;
      for (const std::size_t b : used_by[to_index(task.first)]) update_before(h, b);
    }
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
      for (const std::int32_t p : members_of(*step_.graph, bucket(b)))
        spent += ready(p) - ready(p - 1);
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

void add_coding(const PassInput& input, StepDraft& step) {
  if (input.codec || input.compression) Coding(input, step).run();
}

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
