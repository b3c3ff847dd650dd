// K-FAC's factors: computed by hooks, packed, summed as soon as the strategy lets them go, averaged
// after backward.
#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/plan/pass/compute.hpp"
#include "linerate/plan/pass/factor_groups.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

using doc::FactorSide;

/// A group on its way.
struct SentGroup {
  FactorGroup group;
  std::int32_t payload = -1;
  Handle packed = kNoTask, summed = kNoTask;
};

class Factors {
 public:
  Factors(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        curvature_(*input.curvature),
        computed_(to_index(curvature_.factors()), kNoTask) {}

  // Puts the factors' tasks into forward and backward and cuts them into groups. Each group has a
  // pack, a sum and an average. With kfac(dp) a layer's owner keeps its factors, so averages are
  // all.
  void run() {
    // Before the flags that the step's end waits for.
    if (!step_.settling.empty()) settling_ = step_.settling.front();
    step_.averaged_by.assign(computed_.size(), -1);
    compute();
    if (curvature_.kfac.sharing == Sharing::dp) return average_alone();
    const FactorTraffic traffic(input_, step_, computed_);
    std::vector<FactorGroup> groups = group_factors(input_, step_, traffic);
    step_.arrivals = arrivals_of(input_, step_, traffic, groups);
    std::vector<SentGroup> sent;
    for (FactorGroup& group : groups) pack(sent.emplace_back(SentGroup{std::move(group)}));
    sum(sent);
    for (const SentGroup& group : sent) average(group);
  }

 private:
  bool is_there(std::int32_t f) const { return curvature_.elements(f) > 0; }

  // ---- computed by hooks ----

  void compute() {
    const std::vector<Handle> forward = forward_of_layers();
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(curvature_.blocks.size()); ++b) {
      const PlannedBlock& block = curvature_.blocks[to_index(b)];
      const Handle layer = forward[to_index(block.block.layer)];
      const std::int32_t a = doc::factor_index(b, FactorSide::a);
      if (is_there(a)) compute_a(a, layer);
      compute_g(doc::factor_index(b, FactorSide::g), step_.ready[to_index(block.gradients.back())],
                step_.backward[to_index(block.gradients.back())]);
    }
  }

  /// The forward task of each layer; kNoTask if forward is not timed layer by layer.
  std::vector<Handle> forward_of_layers() const {
    std::vector<Handle> of(input_.workload.layers.size(), kNoTask);
    for (const Handle h : step_.forward) {
      const doc::Task& task = step_.tasks[h];
      if (task.subject == doc::Subject::layers && task.first == task.last)
        of[to_index(task.first)] = h;
    }
    return of;
  }

  doc::Task factor_task(std::int32_t f) const {
    doc::Task task =
        observed_task(doc::TaskKind::factor, step_.operation("autograd"), curvature_.factor_s(f));
    task.subject = doc::Subject::factors;
    task.first = task.last = f;
    task.bytes = curvature_.elements(f) * size_of(curvature_.dtype);
    task.group = curvature_.factor_group(doc::block_of_factor(f), *step_.plan);
    return task;
  }

  /// A comes from the layer's input, so it is computed before the layer, or after the whole forward
  /// pass.
  void compute_a(std::int32_t f, Handle layer) {
    if (layer != kNoTask) {
      computed_[to_index(f)] = step_.tasks.insert_before(layer, factor_task(f));
    } else {
      behind_forward_ = step_.tasks.insert_after(
          behind_forward_ == kNoTask ? step_.forward.back() : behind_forward_, factor_task(f));
      computed_[to_index(f)] = behind_forward_;
    }
  }

  /// G comes from the gradient of the layer's output, so it is computed after the layer's last
  /// gradient, which leaves first. In a run's first step gradients are collected at the end, so G
  /// follows the backward task.
  void compute_g(std::int32_t f, Handle ready, Handle backward) {
    const Handle gradient = input_.first_step ? backward : ready;
    computed_[to_index(f)] = step_.tasks.insert_after(gradient, factor_task(f));
    if (gradient == step_.backward_end) step_.backward_end = computed_[to_index(f)];
  }

  // ---- packed, summed, averaged ----

  std::int32_t add_payload(const FactorGroup& group) {
    doc::Payload payload;
    payload.content = doc::Content::factors;
    payload.begin = static_cast<std::int32_t>(step_.graph->members.size());
    for (const std::int32_t f : group.members) {
      step_.graph->members.push_back(f);
      payload.elements += curvature_.sent_elements(f);
    }
    payload.end = static_cast<std::int32_t>(step_.graph->members.size());
    payload.dtype = curvature_.dtype;
    payload.padded = payload.elements;
    return step_.add_payload(payload);
  }

  doc::Task task_on(const SentGroup& group, doc::TaskKind kind, doc::Resource resource,
                    const char* operation) const {
    doc::Task task;
    task.kind = kind;
    task.resource = resource;
    task.subject = doc::Subject::payloads;
    task.wire = curvature_.dtype;
    task.operation = step_.operation(operation);
    task.first = task.last = group.payload;
    task.bytes = step_.graph->payloads[to_index(group.payload)].bytes();
    return task;
  }

  /// Packs once the last member is there, or after backward if all leave together.
  void pack(SentGroup& group) {
    group.payload = add_payload(group.group);
    const Handle last = factors_overlap(input_) ? computed_[to_index(group.group.members.back())]
                                                : step_.backward_end;
    group.packed = step_.tasks.insert_after(
        last, task_on(group, doc::TaskKind::copy, doc::Resource::compute, "pack-factors"));
    step_.tasks.wait(group.packed, last);
    if (last == step_.backward_end) step_.backward_end = group.packed;
  }

  // Groups and buckets stand on the network in the order of factor_order.hpp: a group before its
  // bucket.
  void sum(std::vector<SentGroup>& groups) {
    Handle last = step_.exchanges.back().send;
    for (SentGroup& group : groups) {
      const doc::Task task =
          task_on(group, doc::TaskKind::all_reduce, doc::Resource::network, "sum");
      const bool is_last = group.group.bucket == step_.exchanges.size();
      group.summed = is_last ? step_.tasks.insert_after(last, task)
                             : step_.tasks.insert_before(first_of(group.group.bucket), task);
      if (is_last) last = group.summed;
      step_.tasks.wait(group.summed, group.packed);
    }
  }
  Handle first_of(std::size_t bucket) const {
    const BucketExchange& x = step_.exchanges[bucket];
    return x.counts == kNoTask ? x.send : x.counts;
  }

  Handle append(const doc::Task& task) {
    return settling_ == kNoTask ? step_.append_compute(task)
                                : step_.tasks.insert_before(settling_, task);
  }

  // The running average of what arrived. It stands before the flags that the step's end waits for.
  void average(const SentGroup& group) {
    const Handle h =
        append(task_on(group, doc::TaskKind::copy, doc::Resource::compute, "average-factors"));
    step_.tasks.wait(h, group.summed);
    for (const std::int32_t f : group.group.members)
      step_.averaged_by[to_index(f)] = static_cast<std::int32_t>(step_.averages.size());
    step_.averages.push_back(h);
  }

  /// The owner of a layer keeps its factors to itself.
  void average_alone() {
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(curvature_.blocks.size()); ++b) {
      const std::int32_t a = doc::factor_index(b, FactorSide::a);
      const std::int32_t g = doc::factor_index(b, FactorSide::g);
      doc::Task task;
      task.kind = doc::TaskKind::copy;
      task.resource = doc::Resource::compute;
      task.subject = doc::Subject::factors;
      task.operation = step_.operation("average-factors");
      task.first = is_there(a) ? a : g;
      task.last = g;
      task.bytes = (curvature_.elements(a) + curvature_.elements(g)) * size_of(curvature_.dtype);
      task.group = curvature_.factor_group(b, *step_.plan);
      const Handle h = append(task);
      step_.tasks.wait(h, computed_[to_index(g)]);
      step_.averaged_by[to_index(a)] = step_.averaged_by[to_index(g)] =
          static_cast<std::int32_t>(step_.averages.size());
      step_.averages.push_back(h);
    }
  }

  const PassInput& input_;
  StepDraft& step_;
  const Curvature& curvature_;
  std::vector<Handle> computed_;  // by factor
  Handle behind_forward_ = kNoTask, settling_ = kNoTask;
};

}  // namespace

void add_factors(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.factors) Factors(input, step).run();
}

}  // namespace linerate::plan
