// K-FAC's factors: computed by hooks, packed, summed as soon as the strategy lets them go, averaged
// after backward. Their order on the network is agreed with the gradients': by the time at which
// each is ready (reference: Shi, Zhang & Li 2021, SPD-KFAC).
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

#include "linerate/core/index.hpp"
#include "linerate/plan/exchange/cost_line.hpp"
#include "linerate/plan/kfac/factor_fusion.hpp"
#include "linerate/plan/pass/compute.hpp"
#include "linerate/plan/pass/tensor_times.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

using doc::FactorSide;

/// When each task of the compute lane would end if nothing waited, up to the end of backward.
class LaneTimes {
 public:
  explicit LaneTimes(const StepDraft& step) {
    double now_s = 0;
    for (Handle h = step.tasks.first(doc::Resource::compute); h != kNoTask;
         h = step.tasks.behind(h)) {
      now_s += step.tasks[h].seconds;
      const auto index = static_cast<std::size_t>(h);
      if (end_s_.size() <= index) end_s_.resize(index + 1, -1);
      end_s_[index] = now_s;
      if (h == step.backward_end) break;
    }
    backward_end_s_ = now_s;
  }

  /// For a task of another lane, or after backward: the end of backward.
  double end_of(Handle h) const {
    const auto index = static_cast<std::size_t>(h);
    return index < end_s_.size() && end_s_[index] >= 0 ? end_s_[index] : backward_end_s_;
  }
  double backward_end_s() const { return backward_end_s_; }

 private:
  std::vector<double> end_s_;  // by handle; -1: elsewhere
  double backward_end_s_ = 0;
};

/// Factors that travel together.
struct Group {
  std::vector<std::int32_t> members;
  double ready_s = 0;
  Handle packed = kNoTask, summed = kNoTask;
  std::int32_t payload = -1;
};

class Factors {
 public:
  Factors(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        curvature_(*input.curvature),
        computed_(static_cast<std::size_t>(curvature_.factors()), kNoTask) {}

  void run() {
    // Before the flags that the step's end waits for.
    if (!step_.settling.empty()) settling_ = step_.settling.front();
    step_.averaged_by.assign(computed_.size(), -1);
    compute();
    if (curvature_.kfac.sharing == Sharing::dp) return average_alone();
    std::vector<Group> groups = groups_of(LaneTimes(step_));
    for (Group& group : groups) {
      add_payload(group);
      pack(group);
    }
    const LaneTimes times(step_);
    step_.arrivals = arrivals_of(groups, times);
    sum(groups, times);
    for (const Group& group : groups) average(group);
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

  /// By layer; kNoTask if forward is not timed layer by layer.
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
    task.group = curvature_.computing_factors(doc::block_of_factor(f), *step_.plan);
    return task;
  }

  /// Before its layer, or after the whole forward pass.
  void compute_a(std::int32_t f, Handle layer) {
    if (layer != kNoTask) {
      computed_[to_index(f)] = step_.tasks.insert_before(layer, factor_task(f));
    } else {
      behind_forward_ = step_.tasks.insert_after(
          behind_forward_ == kNoTask ? step_.forward.back() : behind_forward_, factor_task(f));
      computed_[to_index(f)] = behind_forward_;
    }
  }

  /// After its layer's last gradient, which leaves first; in a run's first step, which collects
  /// gradients at the end, after the backward task.
  void compute_g(std::int32_t f, Handle ready, Handle backward) {
    const Handle gradient = input_.first_step ? backward : ready;
    computed_[to_index(f)] = step_.tasks.insert_after(gradient, factor_task(f));
    if (gradient == step_.backward_end) step_.backward_end = computed_[to_index(f)];
  }

  // ---- what travels together ----

  std::vector<Group> groups_of(const LaneTimes& times) const {
    // How often a layer is used is not known yet in the first step: its factors are whole once
    // backward is over.
    if (curvature_.kfac.overlaps_factors() && !input_.first_step) return as_they_get_ready(times);
    std::vector<Group> groups;
    for (std::int32_t f = 0; f < curvature_.factors(); ++f) {
      if (!is_there(f)) continue;
      const bool each = curvature_.kfac.fusion == FactorFusion::none;
      if (each || groups.empty()) groups.push_back({{}, times.backward_end_s()});
      groups.back().members.push_back(f);
    }
    return groups;
  }

  std::vector<Group> as_they_get_ready(const LaneTimes& times) const {
    const std::vector<std::int32_t> order = by_readiness(times);
    std::vector<double> ready_s;
    std::vector<std::int64_t> elements;
    std::vector<std::int32_t> kind;
    for (const std::int32_t f : order) {
      ready_s.push_back(times.end_of(computed_[to_index(f)]));
      elements.push_back(curvature_.sent_elements(f));
      kind.push_back(static_cast<std::int32_t>(doc::side_of_factor(f)));
    }
    const std::vector<Transfer> gradients = gradient_transfers(times);
    return fused({ready_s, elements, kind, seconds_of_sums(), gradients, channel(times)}, order,
                 times);
  }

  /// Seconds of an all-reduce of so many elements of so many factors.
  std::function<double(std::int64_t, std::int64_t)> seconds_of_sums() const {
    return [this, curve = input_.cost.curve(Collective::all_reduce, input_.ranks)](
               std::int64_t n, std::int64_t tensors) {
      return curve.seconds(static_cast<double>(n * size_of(curvature_.dtype))) +
             static_cast<double>(tensors) * tensor_s();
    };
  }

  /// A of all layers, then G: they get ready in this order, even if nothing takes any time.
  std::vector<std::int32_t> by_readiness(const LaneTimes& times) const {
    std::vector<std::int32_t> order;
    for (std::int32_t f = 0; f < curvature_.factors(); ++f)
      if (is_there(f)) order.push_back(f);
    const auto place = [&](std::int32_t f) {
      const FactorSide side = doc::side_of_factor(f);
      return std::tuple(side, times.end_of(computed_[to_index(f)]),
                        side == FactorSide::g ? gradient_of(f) : 0);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t x, std::int32_t y) { return place(x) < place(y); });
    return order;
  }

  /// What each tensor adds to its message (add_tensor_times).
  double tensor_s() const { return input_.ranks > 1 ? input_.cost.cluster().tensor_s : 0; }

  std::int32_t gradient_of(std::int32_t g) const { return curvature_.block_of(g).gradients.back(); }

  static std::vector<Group> cut(const std::vector<std::int32_t>& order, const FactorGroups& ends,
                                std::span<const double> ready_s) {
    std::vector<Group> groups;
    std::size_t f = 0;
    double latest_s = 0;
    for (const std::int32_t end : ends) {
      Group& group = groups.emplace_back();
      for (; f < static_cast<std::size_t>(end); ++f) {
        group.members.push_back(order[f]);
        latest_s = std::max(latest_s, ready_s[f]);
      }
      group.ready_s = latest_s;
    }
    return groups;
  }

  std::vector<Group> fused(const FactorFusionProblem& problem,
                           const std::vector<std::int32_t>& order, const LaneTimes& times) const {
    const auto groups = [&](const FactorGroups& ends) { return cut(order, ends, problem.ready_s); };
    switch (curvature_.kfac.fusion) {
      case FactorFusion::optimal:
        return best(problem, groups, times);
      case FactorFusion::greedy:
        return groups(fuse_greedily(problem, start_up_s(problem)));
      case FactorFusion::none:
        return groups(fuse_nothing(problem));
      default:
        return groups(fuse_each_kind(problem));
    }
  }

  /// The groups that end first may not let inverses begin first: compares the program's groups,
  /// those of the other rules, and one message of everything as kfac(mpd) sends it.
  template <typename Cut>
  std::vector<Group> best(const FactorFusionProblem& problem, Cut groups,
                          const LaneTimes& times) const {
    std::vector<Group> best;
    double least_s = std::numeric_limits<double>::infinity();
    for (const FactorGroups& ends :
         {fuse_optimally(problem), fuse_everything(problem), fuse_each_kind(problem),
          fuse_greedily(problem, start_up_s(problem)), fuse_nothing(problem)}) {
      std::vector<Group> candidate = groups(ends);
      const double end_s = input_.update.inverses && input_.ranks > 1
                               ? curvature_.inverted_s(input_.cost, arrivals_of(candidate, times))
                               : finish_s(problem, ends);
      if (end_s < least_s) least_s = end_s, best = std::move(candidate);
    }
    return best;
  }

  /// The start-up of the straight line that the authors' rule assumes as cost.
  static double start_up_s(const FactorFusionProblem& problem) {
    const auto& elements = problem.elements;
    const auto least = *std::min_element(elements.begin(), elements.end());
    const auto all = std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
    return line_through(static_cast<double>(least), problem.seconds_of(least, 0),
                        static_cast<double>(all), problem.seconds_of(all, 0))
        .alpha_s;
  }

  /// Communication under forward and backward may be slower.
  Channel channel(const LaneTimes& times) const {
    const auto& contention = input_.cost.cluster().contention;
    return {times.backward_end_s(), contention ? contention->communication_slowdown : 1};
  }

  double ready_s(std::size_t bucket, const LaneTimes& times) const {
    const double ready = times.end_of(step_.exchanges[bucket].ready);
    if (step_.not_before.empty() || input_.first_step) return ready;
    return std::max(ready, times.end_of(step_.forward.back()) + step_.not_before[bucket]);
  }

  std::vector<Transfer> gradient_transfers(const LaneTimes& times) const {
    std::vector<Transfer> all;
    double latest_s = 0;  // they keep their order
    for (std::size_t b = 0; b < step_.exchanges.size(); ++b) {
      const doc::Task& send = step_.tasks[step_.exchanges[b].send];
      latest_s = std::max(latest_s, ready_s(b, times));
      all.push_back(
          {latest_s, input_.cost.curve(collective_of(send.kind), input_.ranks, send.wire)
                             .seconds(static_cast<double>(send.priced_bytes())) +
                         static_cast<double>(tensors_of(*step_.graph, send)) * tensor_s()});
    }
    return all;
  }

  // ---- packed, summed, averaged ----

  void add_payload(Group& group) {
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
    group.payload = step_.add_payload(payload);
  }

  doc::Task task_on(const Group& group, doc::TaskKind kind, doc::Resource resource,
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
  void pack(Group& group) {
    const bool overlaps = curvature_.kfac.overlaps_factors() && !input_.first_step;
    const Handle last = overlaps ? computed_[to_index(group.members.back())] : step_.backward_end;
    group.packed = step_.tasks.insert_after(
        last, task_on(group, doc::TaskKind::copy, doc::Resource::compute, "pack-factors"));
    step_.tasks.wait(group.packed, last);
    if (last == step_.backward_end) step_.backward_end = group.packed;
  }

  /// The bucket before which each group leaves: the first that gets ready later.
  std::vector<std::size_t> buckets_behind(const std::vector<Group>& groups,
                                          const LaneTimes& times) const {
    const std::vector<Transfer> buckets = gradient_transfers(times);
    const bool at_the_end = !curvature_.kfac.overlaps_factors() || input_.first_step;
    std::vector<std::size_t> behind;
    std::size_t b = 0;
    for (const Group& group : groups) {
      while (b < buckets.size() && (at_the_end || buckets[b].ready_s <= group.ready_s)) ++b;
      behind.push_back(b);
    }
    return behind;
  }

  /// The network up to the last of them.
  FactorArrivals arrivals_of(const std::vector<Group>& groups, const LaneTimes& times) const {
    const std::vector<Transfer> buckets = gradient_transfers(times);
    const std::vector<std::size_t> behind = buckets_behind(groups, times);
    const auto seconds_of = seconds_of_sums();
    FactorArrivals arrivals{
        {}, std::vector<std::int32_t>(computed_.size(), -1), {}, times.backward_end_s()};
    std::vector<std::int32_t> transfer_of;  // by bucket
    const auto send_bucket = [&](std::size_t bucket) {
      transfer_of.push_back(static_cast<std::int32_t>(arrivals.transfers.size()));
      arrivals.transfers.push_back(buckets[bucket]);
    };
    std::size_t b = 0;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      for (; b < behind[k]; ++b) send_bucket(b);
      std::int64_t elements = 0;
      for (const std::int32_t f : groups[k].members) {
        elements += curvature_.sent_elements(f);
        arrivals.after[to_index(f)] = static_cast<std::int32_t>(arrivals.transfers.size());
      }
      arrivals.transfers.push_back(
          {groups[k].ready_s,
           seconds_of(elements, static_cast<std::int64_t>(groups[k].members.size()))});
    }
    for (; b < buckets.size(); ++b) send_bucket(b);
    arrivals.gradient_after = last_of_blocks(transfer_of);
    return arrivals;
  }

  /// By block, the last transfer that brings a part of its gradient.
  std::vector<std::int32_t> last_of_blocks(const std::vector<std::int32_t>& transfer_of) const {
    std::vector<std::int32_t> of_gradient(input_.workload.gradients.size(), -1);
    for (std::size_t b = 0; b < transfer_of.size(); ++b) {
      const doc::Payload& bucket = step_.graph->payloads[b];
      for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
        of_gradient[to_index(step_.graph->members[to_index(m)])] = transfer_of[b];
    }
    std::vector<std::int32_t> last;
    for (const PlannedBlock& block : curvature_.blocks) {
      last.push_back(-1);
      for (const std::int32_t p : block.gradients)
        last.back() = std::max(last.back(), of_gradient[to_index(p)]);
    }
    return last;
  }

  void sum(std::vector<Group>& groups, const LaneTimes& times) {
    const std::vector<std::size_t> behind = buckets_behind(groups, times);
    Handle last = step_.exchanges.back().send;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      Group& group = groups[k];
      const doc::Task task =
          task_on(group, doc::TaskKind::all_reduce, doc::Resource::network, "sum");
      const bool is_last = behind[k] == step_.exchanges.size();
      group.summed = is_last ? step_.tasks.insert_after(last, task)
                             : step_.tasks.insert_before(first_of(behind[k]), task);
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

  void average(const Group& group) {
    const Handle h =
        append(task_on(group, doc::TaskKind::copy, doc::Resource::compute, "average-factors"));
    step_.tasks.wait(h, group.summed);
    for (const std::int32_t f : group.members)
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
      task.group = curvature_.computing_factors(b, *step_.plan);
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
