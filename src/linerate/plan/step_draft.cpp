// The helpers by which passes put their tasks into the places that the schedule wants. A lane runs
// in order, so the place decides what a task waits for besides its edges.
#include <algorithm>

#include "linerate/plan/passes.hpp"

namespace linerate::plan {

void StepDraft::begin(doc::Plan& into, doc::TaskGraph& variant) {
  plan = &into;
  graph = &variant;
  tasks.clear();
  not_before.clear();
  backward_end = tail = flags_packed = last_checked = samples = kNoTask;
  put_last = put_after = kNoTask;
  exchanges.clear();
  for (auto* const handles : {&forward, &backward, &ready, &settling, &updates, &averages,
                              &inverted, &inverse_sent, &preconditioned})
    handles->clear();
  averaged_by.clear();
  arrivals = {};
  placement = {};
}

Handle StepDraft::append_compute(const doc::Task& task) {
  return tail == kNoTask ? tasks.append(task) : tasks.insert_before(tail, task);
}

// Puts a task of the compute lane right after the gradient that completes the bucket. If another
// task was put after that gradient or a later one, it goes after that task. They run in the order
// in which buckets are sent. `backward_end` moves if the task comes last.
Handle StepDraft::put_into_compute(const doc::Task& task, std::size_t bucket) {
  const Handle gradient = exchanges[bucket].ready;
  if (put_last == kNoTask || gradient > put_after) put_last = put_after = gradient;
  const bool is_the_end = put_last == backward_end;
  put_last = tasks.insert_after(put_last, task);
  if (is_the_end) backward_end = put_last;
  return put_last;
}

// A step may end before the second halves of decoupled exchanges. So the collectives of its end
// come before all of them in the network's lane.
Handle StepDraft::append_collective(const doc::Task& task) {
  const bool decoupled = !exchanges.empty() && exchanges.back().receive != exchanges.back().send;
  return decoupled ? tasks.insert_before(exchanges.back().receive, task) : tasks.append(task);
}

std::int16_t StepDraft::operation(std::string_view name) {
  const auto at =
      std::find_if(plan->operations.begin(), plan->operations.end(),
                   [name](const doc::Component& o) { return o.options.empty() && o.name == name; });
  return at == plan->operations.end() ? plan->operation({std::string(name), {}})
                                      : static_cast<std::int16_t>(at - plan->operations.begin());
}

std::int32_t StepDraft::add_payload(const doc::Payload& payload) {
  graph->payloads.push_back(payload);
  return static_cast<std::int32_t>(graph->payloads.size() - 1);
}

doc::Task StepDraft::broadcast_of(doc::Payload payload, std::span<const std::int32_t> members,
                                  std::int32_t group, std::int32_t root) {
  payload.begin = static_cast<std::int32_t>(graph->members.size());
  graph->members.insert(graph->members.end(), members.begin(), members.end());
  payload.end = static_cast<std::int32_t>(graph->members.size());
  payload.padded = payload.elements;
  doc::Task task;
  task.kind = doc::TaskKind::broadcast;
  task.resource = doc::Resource::network;
  task.subject = doc::Subject::payloads;
  task.wire = payload.dtype;
  task.operation = operation("move");
  task.group = group;
  task.root = root;
  task.bytes = payload.bytes();
  task.first = task.last = add_payload(payload);
  return task;
}

}  // namespace linerate::plan
