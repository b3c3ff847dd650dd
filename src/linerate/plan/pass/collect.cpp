// Gradients into buckets: .grad times the rank's weight, as soon as autograd has left it.
#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

doc::Task collect_task(const PassInput& input, std::int32_t position, std::int16_t operation) {
  doc::Task task;
  task.kind = doc::TaskKind::copy;
  task.resource = doc::Resource::compute;
  task.subject = doc::Subject::gradients;
  task.operation = operation;
  task.first = task.last = position;
  task.bytes = input.workload.gradients[to_index(position)].bytes();
  return task;
}

}  // namespace

// In a steady step each copy follows its gradient's backward task. In the first step it is not
// known how many gradients a parameter gets, so all copies come after backward. They stand in the
// order of the buckets, and a bucket leaves once its own copies are done.
void add_collect(const PassInput& input, StepDraft& step) {
  if (!input.housekeeping) return;
  const std::int16_t scale = step.operation("scale");
  if (!input.first_step) {
    const bool nothing_behind = step.backward_end == step.ready.back();
    for (std::size_t p = 0; p < step.ready.size(); ++p) {
      const Handle backward = step.ready[p];
      step.ready[p] = step.tasks.insert_after(
          backward, collect_task(input, static_cast<std::int32_t>(p), scale));
      step.tasks.wait(step.ready[p], backward);
    }
    if (nothing_behind) step.backward_end = step.ready.back();
    return;
  }
  // A parameter may still get another gradient until backward ends. In the order of the buckets,
  // so that one leaves as soon as its own are in.
  for (const std::int32_t p : step.graph->members) {
    const Handle backward = step.backward_end;
    const Handle copy = step.tasks.insert_after(backward, collect_task(input, p, scale));
    step.tasks.wait(copy, backward);
    step.ready[to_index(p)] = step.backward_end = copy;
  }
}

}  // namespace linerate::plan
