// What training sends besides gradients: which parameters were used and how the step went, rank 0's
// buffers, and how many samples each rank's batch holds.
#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

std::int32_t add_payload(doc::Content content, DType dtype, std::int64_t elements,
                         StepDraft& step) {
  doc::Payload payload;
  payload.content = content;
  payload.dtype = dtype;
  payload.elements = payload.padded = elements;
  return step.add_payload(payload);
}

doc::Task task_on(std::int32_t payload, doc::TaskKind kind, doc::Resource resource,
                  const doc::Component& operation, StepDraft& step) {
  const doc::Payload& p = step.graph->payloads[to_index(payload)];
  doc::Task task;
  task.kind = kind;
  task.resource = resource;
  task.subject = doc::Subject::payloads;
  task.wire = p.dtype;
  task.operation = step.plan->operation(operation);
  task.first = task.last = payload;
  task.bytes = p.flags > 0 ? p.flags * size_of(p.dtype) : p.bytes();
  return task;
}

Handle append_copy(std::int32_t payload, const char* operation, StepDraft& step) {
  return step.append_compute(
      task_on(payload, doc::TaskKind::copy, doc::Resource::compute, {operation, {}}, step));
}

// A payload and its collective. Each message is packed, sent and unpacked. All messages of a step
// are packed before the first one is awaited, so they travel one after the other without a pause.
struct Message {
  std::int32_t payload;
  Handle collective;
};

Message send(std::int32_t payload, doc::TaskKind kind, const doc::Component& operation,
             std::int32_t root, StepDraft& step) {
  const Handle pack = append_copy(payload, "pack", step);
  step.tasks.wait(pack, step.backward_end);
  // Flags say whether a gradient was infinite: encodes find that out.
  if (step.last_checked != kNoTask) step.tasks.wait(pack, step.last_checked);
  doc::Task collective = task_on(payload, kind, doc::Resource::network, operation, step);
  collective.root = root;
  const Handle h = step.append_collective(collective);
  step.tasks.wait(h, pack);
  return {payload, h};
}

void receive(const Message& message, StepDraft& step) {
  const Handle unpack = append_copy(message.payload, "unpack", step);
  step.tasks.wait(unpack, message.collective);
  step.settling.push_back(unpack);
}

// Sums the samples of all batches, before the first gradient is scaled by this rank's share. A rank
// with 6 of 16 samples scales by 6/16, so the sum over ranks is the mean over samples.
void add_samples(StepDraft& step) {
  const std::int32_t payload = add_payload(doc::Content::samples, DType::f64, 1, step);
  const doc::Task sum =
      task_on(payload, doc::TaskKind::all_reduce, doc::Resource::network, {"sum", {}}, step);
  const auto first = [&] {
    const BucketExchange& x = step.exchanges.front();
    return x.counts == kNoTask ? x.send : x.counts;
  };
  const Handle h =
      step.exchanges.empty() ? step.tasks.append(sum) : step.tasks.insert_before(first(), sum);
  // Scaling is in the compute lane's order: the first one to wait holds the others.
  for (const Handle ready : step.ready) step.tasks.wait(ready, h);
  step.samples = h;
}

std::int64_t flags_of(const PassInput& input) {
  return static_cast<std::int64_t>(input.workload.gradients.size()) +
         (input.compression ? doc::kCompressedStepFlags : doc::kStepFlags);
}

}  // namespace

// Flags are numbers at the end of the last bucket, so the bucket's all-reduce also sums them. A
// flag is up if its sum is above zero. A message of its own would cost a start-up. The bucket then
// waits for the end of backward.
void add_flags(const PassInput& input, StepDraft& step) {
  const bool summed_as_it_is = !input.compression && (!input.codec || input.codec->is_cast);
  if (!input.housekeeping || !summed_as_it_is || input.form.gather) return;
  // Every rank has to know the flags before the second half of the exchange.
  if (input.schedule == Schedule::decoupled) return;
  doc::Payload& last = step.graph->payloads.back();
  last.flags = flags_of(input);
  last.elements += last.flags;
  last.padded += last.flags;
  const auto bucket = static_cast<std::int32_t>(step.graph->payloads.size() - 1);
  step.flags_packed = append_copy(bucket, "pack", step);
  step.tasks.wait(step.flags_packed, step.backward_end);
  step.backward_end = step.flags_packed;
}

// The flags, if none ride with a bucket, then the buffers; both are unpacked at the end. The
// optimizer waits for the unpacking (StepDraft::settling).
void add_housekeeping(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping) return;
  if (input.weighted) add_samples(step);
  std::vector<Message> messages;
  if (step.flags_packed != kNoTask)
    messages.push_back(
        {static_cast<std::int32_t>(step.exchanges.size() - 1), step.exchanges.back().received});
  else
    messages.push_back(send(add_payload(doc::Content::flags, DType::u8, flags_of(input), step),
                            doc::TaskKind::all_reduce, {"max", {}}, -1, step));
  if (input.housekeeping->buffer_bytes > 0)
    messages.push_back(
        send(add_payload(doc::Content::buffers, DType::u8, input.housekeeping->buffer_bytes, step),
             doc::TaskKind::broadcast, {"move", {}}, 0, step));
  for (const Message& message : messages) receive(message, step);
  // When the flags are read all gradients are there, or nothing that the step's end needs.
  if (input.schedule == Schedule::decoupled) return;
  for (const BucketExchange& x : step.exchanges)
    if (x.received != messages.front().collective)
      step.tasks.wait(step.settling.front(), x.received);
}

}  // namespace linerate::plan
