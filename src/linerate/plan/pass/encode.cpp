// Codecs and casts: a bucket becomes an encoded payload before its collective and values again
// after it.
#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

class Coder {
 public:
  Coder(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        operation_(step.plan->operation(input.codec->operation)),
        place_(coding_place(input, input.codec->cost.on)) {}

  void run() {
    const auto buckets = static_cast<std::int32_t>(step_.exchanges.size());
    if (place_ == doc::CodingPlace::codec)
      on_a_lane_of_its_own(buckets);
    else
      on_compute(buckets);
  }

 private:
  bool is_coded(std::int32_t b) const { return !input_.form.is_plain(bucket(b).dtype); }
  const doc::Payload& bucket(std::int32_t b) const { return step_.graph->payloads[to_index(b)]; }
  BucketExchange& exchange(std::int32_t b) { return step_.exchanges[to_index(b)]; }

  // With three buckets the coding lane runs e0, e1, d0, e2, d1, d2: while one bucket travels, the
  // next one is encoded. The last bucket of a turn is decoded before the next turn's first encode,
  // because that turn's gradients come after the decode. Decoupled exchanges decode at the end, the
  // last bucket first.
  void on_a_lane_of_its_own(std::int32_t buckets) {
    const bool decoupled = input_.schedule == Schedule::decoupled;
    for (std::int32_t b = 0; b < buckets; ++b) {
      const bool begins_turn = b > 0 && turn_of(input_, step_, b) != turn_of(input_, step_, b - 1);
      if (begins_turn) decode_at_the_end(b - 1);
      if (is_coded(b)) encode(b, step_.tasks.append(task(doc::TaskKind::encode, b)));
      if (!decoupled && b > 0 && !begins_turn) decode_at_the_end(b - 1);
    }
    if (!decoupled && buckets > 0) decode_at_the_end(buckets - 1);
    for (std::int32_t b = buckets; decoupled && b-- > 0;) decode_at_the_end(b);
  }

  // Encodes stand between backward tasks, each after its bucket's last gradient. With `alone` the
  // decode stands there as well and so holds up backward; otherwise decodes come last.
  void on_compute(std::int32_t buckets) {
    const bool alone = place_ == doc::CodingPlace::alone;
    for (std::int32_t b = 0; b < buckets; ++b) {
      if (!is_coded(b)) continue;
      encode(b, put(b, doc::TaskKind::encode));
      if (alone) decoded(b, put(b, doc::TaskKind::decode));
    }
    for (std::int32_t b = 0; b < buckets && !alone; ++b) {
      if (!is_coded(b)) continue;
      const doc::Task decode = task(doc::TaskKind::decode, b);
      decoded(b, step_.tail == kNoTask ? step_.tasks.append(decode)
                                       : step_.tasks.insert_before(step_.tail, decode));
    }
  }

  Handle put(std::int32_t b, doc::TaskKind kind) {
    return step_.put_into_compute(task(kind, b), to_index(b));
  }

  void decode_at_the_end(std::int32_t b) {
    if (is_coded(b)) decoded(b, step_.tasks.append(task(doc::TaskKind::decode, b)));
  }

  // The collective waits for the encode instead of the last gradient, and moves the encoded
  // payload.
  void encode(std::int32_t b, Handle h) {
    BucketExchange& x = exchange(b);
    step_.tasks.wait(h, x.ready);
    step_.tasks.wait_instead(x.send, x.ready, h);
    const auto payload = static_cast<std::int32_t>(step_.graph->payloads.size());
    step_.graph->payloads.push_back(encoded(b));
    for (const Handle collective : {x.send, x.receive}) {
      doc::Task& t = step_.tasks[collective];
      t.first = t.last = payload;
      t.bytes = step_.graph->payloads.back().bytes();
    }
  }

  void decoded(std::int32_t b, Handle h) {
    step_.tasks.wait(h, exchange(b).receive);
    exchange(b).received = h;
  }

  doc::Payload encoded(std::int32_t b) const {
    doc::Payload p = bucket(b);
    p.content = doc::Content::encoded;
    p.of = b;
    p.begin = p.end = 0;
    p.dtype = input_.form.dtype(bucket(b).dtype);
    if (input_.codec->is_cast) return p;
    p.dtype = DType::u8;
    p.elements = input_.form.bytes(bucket(b).elements, bucket(b).dtype, 1);
    p.padded = input_.form.bytes(bucket(b).elements, bucket(b).dtype, input_.ranks);
    if (input_.schedule == Schedule::decoupled) pad_to_blocks(p, input_.ranks);
    return p;
  }

  doc::Task task(doc::TaskKind kind, std::int32_t b) const {
    const std::int64_t dense = bucket(b).elements * size_of(bucket(b).dtype);
    doc::Task t;
    t.kind = kind;
    t.resource = place_ == doc::CodingPlace::codec ? doc::Resource::codec : doc::Resource::compute;
    t.subject = doc::Subject::payloads;
    t.operation = operation_;
    t.first = t.last = b;
    t.bytes = dense;
    const doc::CodedTensors coded{dense, bucket(b).end - bucket(b).begin};
    t.seconds = kind == doc::TaskKind::encode
                    ? input_.codec->encode_s(coded)
                    : input_.codec->decode_s(coded) * (input_.form.gather ? input_.ranks : 1);
    return t;
  }

  const PassInput& input_;
  StepDraft& step_;
  std::int16_t operation_;
  doc::CodingPlace place_;
};

}  // namespace

void add_codec(const PassInput& input, StepDraft& step) {
  if (input.codec) Coder(input, step).run();
}

}  // namespace linerate::plan
