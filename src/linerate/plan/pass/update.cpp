// The optimizer: it waits for all exchanges that are not decoupled.
#include <algorithm>

#include "linerate/plan/pass/compute.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {

void add_update(const PassInput& input, StepDraft& step) {
  if (input.schedule == Schedule::decoupled) return;
  const auto buckets = static_cast<std::int32_t>(step.exchanges.size());
  doc::Task task = observed_task(doc::TaskKind::update, step.operation("optimizer"),
                                 parts_of(input.workload).update_s);
  task.subject = doc::Subject::payloads;
  task.last = buckets - 1;
  const Handle update =
      step.tail == kNoTask ? step.tasks.append(task) : step.tasks.insert_before(step.tail, task);
  // Collectives end in the order of the buckets, and so do decodes: the last of each is enough.
  if (buckets > 0) step.tasks.wait(update, step.exchanges.back().received);
  const auto coded = [](const BucketExchange& x) { return x.received != x.receive; };
  const auto last = std::find_if(step.exchanges.rbegin(), step.exchanges.rend(), coded);
  if (last != step.exchanges.rend() && last != step.exchanges.rbegin())
    step.tasks.wait(update, last->received);
  for (const Handle h : step.settling) step.tasks.wait(update, h);
}

}  // namespace linerate::plan
