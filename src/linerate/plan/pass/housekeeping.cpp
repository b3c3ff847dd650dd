// What training sends beside gradients: which parameters were used, rank 0's buffers, and how many
// samples each rank's batch holds.
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

std::int32_t add_payload(doc::Content content, DType dtype, std::int64_t elements,
                         StepDraft& step) {
  doc::Payload payload;
  payload.content = content;
  payload.dtype = dtype;
  payload.elements = payload.padded = elements;
  step.graph->payloads.push_back(payload);
  return static_cast<std::int32_t>(step.graph->payloads.size() - 1);
}

doc::Task task_on(std::int32_t payload, doc::TaskKind kind, doc::Resource resource,
                  const doc::Component& operation, StepDraft& step) {
  const doc::Payload& p = step.graph->payloads[static_cast<std::size_t>(payload)];
  doc::Task task;
  task.kind = kind;
  task.resource = resource;
  task.subject = doc::Subject::payloads;
  task.wire = p.dtype;
  task.operation = step.plan->operation(operation);
  task.first = task.last = payload;
  task.bytes = p.bytes();
  return task;
}

Handle append_compute(const doc::Task& task, StepDraft& step) {
  return step.tail == kNoTask ? step.tasks.append(task) : step.tasks.insert_before(step.tail, task);
}

// pack, collective, unpack. The last two pairs of a step run one behind the other: both are packed
// before the first is awaited.
struct Message {
  std::int32_t payload;
  Handle collective;
};

Message send(std::int32_t payload, doc::TaskKind kind, const doc::Component& operation,
             std::int32_t root, StepDraft& step) {
  const Handle pack = append_compute(
      task_on(payload, doc::TaskKind::copy, doc::Resource::compute, {"pack", {}}, step), step);
  step.tasks.wait(pack, step.backward_end);
  doc::Task collective = task_on(payload, kind, doc::Resource::network, operation, step);
  collective.root = root;
  const Handle h = step.tasks.append(collective);
  step.tasks.wait(h, pack);
  return {payload, h};
}

void receive(const Message& message, StepDraft& step) {
  const Handle unpack = append_compute(
      task_on(message.payload, doc::TaskKind::copy, doc::Resource::compute, {"unpack", {}}, step),
      step);
  step.tasks.wait(unpack, message.collective);
  step.settling.push_back(unpack);
}

// How much of the batch is this rank's, before the first gradient is scaled.
void add_samples(StepDraft& step) {
  const std::int32_t payload = add_payload(doc::Content::samples, DType::f64, 1, step);
  const doc::Task sum =
      task_on(payload, doc::TaskKind::all_reduce, doc::Resource::network, {"sum", {}}, step);
  const Handle h = step.exchanges.empty()
                       ? step.tasks.append(sum)
                       : step.tasks.insert_before(step.exchanges.front().send, sum);
  // Scaling is in the compute lane's order: the first one to wait holds the others.
  for (const Handle ready : step.ready) step.tasks.wait(ready, h);
}

}  // namespace

void add_housekeeping(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping) return;
  const auto gradients = static_cast<std::int64_t>(input.workload.gradients.size());
  if (input.weighted) add_samples(step);
  const Message flags = send(add_payload(doc::Content::flags, DType::u8, gradients, step),
                             doc::TaskKind::all_reduce, {"max", {}}, -1, step);
  std::vector<Message> messages{flags};
  if (input.housekeeping->buffer_bytes > 0)
    messages.push_back(
        send(add_payload(doc::Content::buffers, DType::u8, input.housekeeping->buffer_bytes, step),
             doc::TaskKind::broadcast, {"move", {}}, 0, step));
  // The flags' unpacking settles gradients: those must have arrived.
  for (const Message& message : messages) receive(message, step);
  for (const BucketExchange& x : step.exchanges) step.tasks.wait(step.settling.front(), x.received);
}

}  // namespace linerate::plan
