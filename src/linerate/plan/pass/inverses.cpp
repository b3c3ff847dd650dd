// K-FAC's inverses: by every rank, or by their owner, who tells the others. Those with an owner
// come first, so that broadcasts travel under what every rank inverts for itself
// (kfac/placement.hpp).
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

class Inverses {
 public:
  Inverses(const PassInput& input, StepDraft& step)
      : step_(step),
        curvature_(*input.curvature),
        settling_(step.settling.empty() ? kNoTask : step.settling.front()) {}

  void run() {
    const auto factors = static_cast<std::size_t>(curvature_.factors());
    step_.inverted.assign(factors, kNoTask);
    step_.inverse_sent.assign(factors, kNoTask);
    for (const std::int32_t f : curvature_.inverses.order) invert(f);
    for (const std::int32_t f : curvature_.inverses.sent) send(f);
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

  void invert(std::int32_t f) {
    doc::Task task;
    task.kind = doc::TaskKind::inverse;
    task.resource = doc::Resource::compute;
    task.subject = doc::Subject::inverses;
    task.operation = step_.plan->operation({"inverse", {}});
    task.group = curvature_.inverting(f, *step_.plan);
    task.first = task.last = f;
    task.bytes = curvature_.elements(f) * size_of(curvature_.dtype);
    task.seconds = curvature_.inverse_s(f);
    const Handle h = settling_ == kNoTask ? step_.append_compute(task)
                                          : step_.tasks.insert_before(settling_, task);
    step_.tasks.wait(h, step_.averaged[at(f)]);
    step_.inverted[at(f)] = h;
  }

  void send(std::int32_t f) {
    doc::Payload payload;
    payload.content = doc::Content::inverse;
    payload.dtype = curvature_.dtype;
    payload.begin = static_cast<std::int32_t>(step_.graph->members.size());
    payload.end = payload.begin + 1;
    payload.elements = payload.padded = curvature_.elements(f) + doc::kInverseStatus;
    step_.graph->members.push_back(f);
    doc::Task task;
    task.kind = doc::TaskKind::broadcast;
    task.resource = doc::Resource::network;
    task.subject = doc::Subject::payloads;
    task.wire = curvature_.dtype;
    task.operation = step_.plan->operation({"move", {}});
    task.group = curvature_.holding(doc::block_of_factor(f), *step_.plan);
    task.root = curvature_.root_among_holders(f);
    task.bytes = payload.bytes();
    task.first = task.last = step_.add_payload(payload);
    const Handle h = step_.append_collective(task);
    step_.tasks.wait(h, step_.inverted[at(f)]);
    step_.inverse_sent[at(f)] = h;
  }

  StepDraft& step_;
  const Curvature& curvature_;
  Handle settling_;
};

}  // namespace

void add_inverses(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.inverses) Inverses(input, step).run();
}

}  // namespace linerate::plan
