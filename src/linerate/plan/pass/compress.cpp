// Compressors: a bucket's tensors are encoded, exchanged in one round or several, and decoded back
// into the bucket. Tensors that compression does not pay for travel dense with them.
#include <algorithm>

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
  BucketCoding coding;
  std::vector<CodedTransfer> transfers;  // one an encode, in order
  std::int32_t dense = -1;               // payload
  Handle last = kNoTask;                 // the collective of the round sent last
  Handle dense_sent = kNoTask;
};

// Puts the encodes, collectives and decodes of all buckets into the step. A compressor may need
// several rounds: PowerSGD sums one factor, encodes with the sum, and sums the other factor.
class Compressing {
 public:
  Compressing(const PassInput& input, StepDraft& step)
      : input_(input), step_(step), buckets_(step.exchanges.size()) {
    const CodingInput coding{input.workload, input.cost, input.schedule, input.ranks, input.phase};
    for (std::size_t b = 0; b < step.exchanges.size(); ++b)
      buckets_[b].coding =
          input.compression->coding_of(coding, *step.graph, step.graph->payloads[b]);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
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
  /// Decoupled exchanges decode at the end, in the order in which the next step needs the buckets.
  void run() {
    if (rounds_ == 0) return;
    keep_units();
    const std::size_t count = buckets_.size();
    const bool decoupled = input_.schedule == Schedule::decoupled;
    for (std::size_t stage = 0; stage < count + rounds_; ++stage) {
      if (stage < count) begin(stage);
      for (std::size_t r = 0; r < rounds_ && r <= stage; ++r)
        if (stage - r < count && r < buckets_[stage - r].transfers.size() && !is_alone(stage - r))
          encode(stage - r, r);
      if (stage >= rounds_ && !decoupled && !is_alone(stage - rounds_)) decode(stage - rounds_);
    }
    if (decoupled)
      for (std::size_t b = count; b-- > 0;) decode(b);
  }

 private:
  /// A bucket that is encoded keeps its gradients in their own units. The mean is taken after the
  /// decode.
  void keep_units() {
    if (!input_.housekeeping) return;
    const std::int16_t scale = step_.plan->operation(scale_in_gradient_units());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!buckets_[b].coding.is_coded()) continue;
      const doc::Payload& bucket = step_.graph->payloads[b];
      for (std::int32_t m = bucket.begin; m < bucket.end; ++m) {
        const auto position = to_index(step_.graph->members[to_index(m)]);
        step_.tasks[step_.ready[position]].operation = scale;
      }
    }
  }

  // ---- payloads: of the rounds, then the dense one ----

  void add_payloads(std::size_t b) {
    CodedExchange& x = buckets_[b];
    if (!x.coding.is_coded()) return;
    if (x.coding.has_owners())
      add_two_phase(b);
    else
      for (const BucketRound& round : x.coding.layout.rounds)
        x.transfers.push_back(transfer_of(b, round));
    if (x.coding.layout.has_dense_payload())
      x.dense = add_payload(b, DType::f32, x.coding.layout.dense_elements, 1);
  }

  CodedTransfer transfer_of(std::size_t b, const BucketRound& round) {
    CodedTransfer t;
    t.dtype = round.dtype;
    t.combine = round.combine;
    const bool gathers = round.combine == Combine::gather;
    t.payload = add_payload(b, round.dtype, round.elements, gathers ? input_.ranks : 1);
    if (!gathers || !round.tells_sizes) return t;
    t.expected = std::min(round.expected, round.elements) * size_of(round.dtype) * input_.ranks;
    doc::Payload counts;
    counts.content = doc::Content::counts;
    counts.of = t.payload;
    counts.dtype = DType::i64;
    counts.elements = 1;
    counts.padded = input_.ranks;
    t.counts = add(counts);
    return t;
  }

  void add_two_phase(std::size_t b) {
    CodedExchange& x = buckets_[b];
    const std::int64_t block = x.coding.chunks.block_bytes;
    CodedTransfer to_owners, from_owners;
    to_owners.payload = add_payload(b, DType::u8, block * input_.ranks, 1);
    to_owners.into = add_payload(b, DType::u8, block * input_.ranks, 1);
    from_owners.payload = add_payload(b, DType::u8, block, input_.ranks);
    x.transfers = {to_owners, from_owners};
  }

  std::int32_t add_payload(std::size_t b, DType dtype, std::int64_t elements, int times) {
    doc::Payload p;
    p.content = doc::Content::encoded;
    p.of = static_cast<std::int32_t>(b);
    p.dtype = dtype;
    p.elements = elements;
    p.padded = elements * times;
    if (input_.schedule == Schedule::decoupled) pad_to_blocks(p, input_.ranks);
    return add(p);
  }
  std::int32_t add(const doc::Payload& payload) {
    step_.graph->payloads.push_back(payload);
    return static_cast<std::int32_t>(step_.graph->payloads.size() - 1);
  }

  // ---- tasks ----

  doc::CodingPlace place_of(std::size_t b) const {
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
      step_.last_checked = h;
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

  /// Adds an exchange of counts before the collective, if ranks send different numbers of bytes.
  Handle send_counts(const CodedTransfer& t, Handle collective, Handle encoded) {
    if (t.counts < 0) return kNoTask;
    doc::Task task;
    task.resource = doc::Resource::network;
    task.subject = doc::Subject::payloads;
    const Handle h = step_.tasks.insert_before(collective, task);
    move_instead(h, {t.counts, -1, -1, DType::i64, Combine::gather, 0});
    step_.tasks.wait(h, encoded);
    step_.tasks.wait(collective, h);
    return h;
  }

  Handle send(const CodedTransfer& transfer, Handle encoded) {
    doc::Task task;
    task.resource = doc::Resource::network;
    task.subject = doc::Subject::payloads;
    network_ = step_.tasks.insert_after(network_, task);
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

  // Puts the bucket's decode into the step. It waits for the last round and for the dense part. If
  // payloads were gathered, a rank decodes those of all ranks.
  void decode(std::size_t b) {
    CodedExchange& x = buckets_[b];
    if (!x.coding.is_coded()) return;
    const bool reads_all =
        !x.coding.two_phase && x.coding.layout.rounds.back().combine == Combine::gather;
    doc::Task task = codec_task(doc::TaskKind::decode, b, 0);
    task.seconds = x.coding.method->decode_s(x.coding.coded()) * (reads_all ? input_.ranks : 1);
    const Handle h = put(b, task, true);
    step_.tasks.wait(h, x.last);
    if (x.dense_sent != kNoTask) step_.tasks.wait(h, x.dense_sent);
    step_.exchanges[b].received = h;
  }

  doc::Task encode_task(std::size_t b, std::size_t r) const {
    const BucketCoding& coding = buckets_[b].coding;
    doc::Task task = codec_task(doc::TaskKind::encode, b, r);
    const Method& method = *coding.method;
    const doc::CodedTensors coded = coding.coded();
    if (!coding.has_owners())
      task.seconds = method.encode_s(coded) / static_cast<double>(coding.layout.rounds.size());
    else if (r == 0)
      task.seconds = method.encode_s(coded);
    else  // an owner's: the others' payloads of 1/ranks, and their mean
      task.seconds = method.decode_s(coded) + method.encode_s(coding.part_of(input_.ranks));
    return task;
  }

  doc::Task codec_task(doc::TaskKind kind, std::size_t b, std::size_t r) const {
    const BucketCoding& coding = buckets_[b].coding;
    compress::CodingStep what{coding.method->component, static_cast<int>(r), input_.phase,
                              coding.two_phase};
    doc::Task t;
    t.kind = kind;
    t.resource =
        place_of(b) == doc::CodingPlace::codec ? doc::Resource::codec : doc::Resource::compute;
    t.subject = doc::Subject::payloads;
    t.operation = step_.plan->operation(what.to_operation());
    t.first = t.last = static_cast<std::int32_t>(b);
    t.bytes = coding.layout.coded_elements() * size_of(DType::f32);
    return t;
  }

  const PassInput& input_;
  StepDraft& step_;
  std::vector<CodedExchange> buckets_;
  std::size_t rounds_ = 0;
  Handle network_ = kNoTask;  // the next collective is inserted after it
};

}  // namespace

void add_compression(const PassInput& input, StepDraft& step) {
  if (input.compression) Compressing(input, step).run();
}

}  // namespace linerate::plan
