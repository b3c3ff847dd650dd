// K-FAC's inverses: by every rank, or by their owner, which sends them; in the order of
// kfac/placement.hpp, as averages arrive or after all of them.
#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// Puts the inverses into the compute lane in the placement's order, each before the first average
// that no inverse so far needs. So ranks invert while later factors travel.
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
    is_sent_.assign(to_index(curvature_.factors()), false);
    for (const std::int32_t f : placement_.sent) is_sent_[to_index(f)] = true;
    for (const std::vector<std::int32_t>& call : calls()) invert(call);
    std::size_t begin = 0;
    for (const std::int32_t end : placement_.ends) {
      send(std::span(placement_.sent).subspan(begin, to_index(end) - begin));
      begin = to_index(end);
    }
  }

 private:
  std::int32_t owner(std::int32_t f) const { return placement_.owner[to_index(f)]; }
  /// The average that an inverse waits for, by its place in `averages`.
  std::size_t average(std::int32_t f) const {
    return to_index(curvature_.needed_by_inverse(f, step_.averaged_by));
  }

  /// Factors in the order of their inverses, some of them together in one call of the solver. They
  /// are together if one call takes less time than one by one. They have one size and one owner.
  /// None is sent, and none arrives later than the first of them; otherwise the first would have to
  /// wait.
  std::vector<std::vector<std::int32_t>> calls() const {
    std::vector<std::vector<std::int32_t>> all;
    std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> open;  // by owner and size
    for (const std::int32_t f : placement_.order) {
      const int most = is_sent_[to_index(f)] ? 1 : curvature_.most_together(f);
      if (most > 1) {
        const auto [at, is_new] = open.try_emplace({owner(f), curvature_.elements(f)}, all.size());
        if (!is_new) {
          std::vector<std::int32_t>& call = all[at->second];
          if (std::ssize(call) < most && average(f) <= average(call.front())) {
            call.push_back(f);
            continue;
          }
          at->second = all.size();
        }
      }
      all.push_back({f});
    }
    return all;
  }

  /// All tasks of a call but the last take no time and wait for their own average. The last task
  /// does the work of all.
  void invert(const std::vector<std::int32_t>& call) {
    Handle before = kNoTask;
    for (const std::int32_t f : call) {
      arrived_ = std::max(arrived_, average(f) + 1);
      const Handle h = insert(task_of(f, call));
      for (const std::int32_t each : call)
        if (each == f || f == call.back()) step_.tasks.wait(h, step_.averages[average(each)]);
      if (before != kNoTask) step_.tasks.wait(h, before);
      before = h;
    }
    for (const std::int32_t f : call) step_.inverted[to_index(f)] = before;
  }

  doc::Task task_of(std::int32_t f, const std::vector<std::int32_t>& call) const {
    const bool is_last = f == call.back();
    doc::Task task;
    task.kind = doc::TaskKind::inverse;
    task.resource = doc::Resource::compute;
    task.subject = doc::Subject::inverses;
    task.operation = step_.plan->operation(is_last ? doc::inverse_operation(curvature_.kfac.eigen)
                                                   : doc::inverse_with_next_operation());
    task.group = curvature_.inverse_group(owner(f), *step_.plan);
    task.first = task.last = f;
    if (!is_last) return task;
    for (const std::int32_t each : call) {
      task.bytes += curvature_.elements(each) * size_of(curvature_.dtype);
      task.seconds +=
          curvature_.inverse_s(each) * (call.size() > 1 ? curvature_.together_share(each) : 1);
    }
    return task;
  }

  /// Puts a task before the first average that nothing needs so far.
  Handle insert(const doc::Task& task) {
    if (arrived_ < step_.averages.size())
      return step_.tasks.insert_before(step_.averages[arrived_], task);
    return settling_ == kNoTask ? step_.append_compute(task)
                                : step_.tasks.insert_before(settling_, task);
  }

  // A broadcast of these inverses from their owner, once the last one is made.
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
  std::size_t arrived_ = 0;    // averages that inverses so far need
  std::vector<bool> is_sent_;  // by factor
};

}  // namespace

void add_inverses(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.inverses) Inverses(input, step).run();
}

}  // namespace linerate::plan
