// K-FAC's inverses: by every rank, or by their owner, which sends them; in the order of
// kfac/placement.hpp, as averages arrive or after all of them.
#include <algorithm>
#include <span>

#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

class Inverses {
 public:
  Inverses(const PassInput& input, StepDraft& step)
      : step_(step),
        curvature_(*input.curvature),
        placement_(step.placement),
        settling_(step.settling.empty() ? kNoTask : step.settling.front()) {
    step.placement = curvature_.place(input.cost, step.arrivals);
    if (placement_.behind_arrivals) arrived_ = step.averages.size();
  }

  void run() {
    step_.inverted.assign(to_index(curvature_.factors()), kNoTask);
    for (const std::int32_t f : placement_.order) invert(f);
    std::size_t begin = 0;
    for (const std::int32_t end : placement_.ends) {
      send(std::span(placement_.sent).subspan(begin, to_index(end) - begin));
      begin = to_index(end);
    }
  }

 private:
  std::int32_t owner(std::int32_t f) const { return placement_.owner[to_index(f)]; }

  void invert(std::int32_t f) {
    doc::Task task;
    task.kind = doc::TaskKind::inverse;
    task.resource = doc::Resource::compute;
    task.subject = doc::Subject::inverses;
    task.operation = step_.plan->operation(doc::inverse_operation(curvature_.kfac.eigen));
    task.group = curvature_.inverse_group(owner(f), *step_.plan);
    task.first = task.last = f;
    task.bytes = curvature_.elements(f) * size_of(curvature_.dtype);
    task.seconds = curvature_.inverse_s(f);
    const std::size_t average = to_index(curvature_.needed_by_inverse(f, step_.averaged_by));
    arrived_ = std::max(arrived_, average + 1);
    const Handle h = insert(task);
    step_.tasks.wait(h, step_.averages[average]);
    if (step_.damped != kNoTask) step_.tasks.wait(h, step_.damped);
    step_.inverted[to_index(f)] = h;
  }

  /// Before the first average that nothing needs so far.
  Handle insert(const doc::Task& task) {
    if (arrived_ < step_.averages.size())
      return step_.tasks.insert_before(step_.averages[arrived_], task);
    return settling_ == kNoTask ? step_.append_compute(task)
                                : step_.tasks.insert_before(settling_, task);
  }

  void send(std::span<const std::int32_t> message) {
    doc::Payload payload;
    payload.content = curvature_.kfac.eigen ? doc::Content::eigen : doc::Content::inverse;
    payload.dtype = curvature_.dtype;
    for (const std::int32_t f : message)
      payload.elements += curvature_.inverse_elements(f) + doc::kInverseStatus;
    const std::int32_t holders =
        curvature_.holder_group(doc::block_of_factor(message.front()), *step_.plan);
    const Handle h = step_.append_collective(step_.broadcast_of(
        payload, message, holders, curvature_.root_among_holders(owner(message.front()))));
    for (const std::int32_t f : message) step_.tasks.wait(h, step_.inverted[to_index(f)]);
    step_.inverse_sent.push_back(h);
  }

  StepDraft& step_;
  const Curvature& curvature_;
  const Placement& placement_;
  Handle settling_;
  std::size_t arrived_ = 0;  // averages that inverses so far need
};

}  // namespace

void add_inverses(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.inverses) Inverses(input, step).run();
}

}  // namespace linerate::plan
