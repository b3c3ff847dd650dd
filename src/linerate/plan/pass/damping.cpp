// Levenberg-Marquardt damping over ranks (Martens & Grosse 2015, section 6.5): how the loss changed
// by the last update travels at the head of the step, so that every rank damps alike.
#include "linerate/plan/pass/summed_numbers.hpp"

namespace linerate::plan {

SummedNumbers summed_numbers(doc::Content content, std::int64_t elements, const char* pack,
                             const char* take, StepDraft& step) {
  doc::Payload payload;
  payload.content = content;
  payload.dtype = DType::f64;
  payload.elements = payload.padded = elements;
  doc::Task task;
  task.subject = doc::Subject::payloads;
  task.wire = payload.dtype;
  task.bytes = payload.bytes();
  task.first = task.last = step.add_payload(payload);
  SummedNumbers all{task, task, task};
  for (doc::Task* copy : {&all.pack, &all.take}) {
    copy->kind = doc::TaskKind::copy;
    copy->resource = doc::Resource::compute;
  }
  all.pack.operation = step.operation(pack);
  all.take.operation = step.operation(take);
  all.sum.kind = doc::TaskKind::all_reduce;
  all.sum.resource = doc::Resource::network;
  all.sum.operation = step.operation("sum");
  return all;
}

void add_damping(const PassInput& input, StepDraft& step) {
  if (!input.curvature || !input.curvature->kfac.lm) return;
  constexpr std::int64_t kNumbers = 2;  // the loss's change, and whether there is one
  const SummedNumbers losses =
      summed_numbers(doc::Content::losses, kNumbers, "pack-losses", "take-losses", step);
  const auto in_front = [&](const doc::Task& task) {
    const Handle first = step.tasks.first(task.resource);
    return first == kNoTask ? step.tasks.append(task) : step.tasks.insert_before(first, task);
  };
  const Handle packed = in_front(losses.pack), summed = in_front(losses.sum);
  step.tasks.wait(summed, packed);
  step.damped = step.settling.empty()
                    ? step.append_compute(losses.take)
                    : step.tasks.insert_before(step.settling.front(), losses.take);
  step.tasks.wait(step.damped, summed);
}

}  // namespace linerate::plan
