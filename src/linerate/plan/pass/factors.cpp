// K-FAC's factors: computed by hooks, packed, summed as soon as the strategy lets them go, averaged
// after backward.
#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/factor_fusion.hpp"
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
    step_.averaged_by.assign(computed_.size(), -1);
    compute();
    if (curvature_.kfac.sharing == Sharing::dp) return average_alone();
    const FactorTraffic traffic = traffic_of(input_, step_, computed_);
    std::vector<FactorGroup> groups = group_factors(input_, step_, traffic);
    step_.arrivals = arrivals_of(input_, traffic, groups);
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
    doc::Task task = observed_task(doc::TaskKind::factor, step_.operation("autograd"),
                                   curvature_.planned(f).factor_s);
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
    doc::Payload payload{.content = doc::Content::factors, .dtype = curvature_.dtype};
    for (const std::int32_t f : group.members) payload.elements += curvature_.sent_elements(f);
    return step_.add_payload(payload, group.members);
  }

  /// Packs once the last member is there, or after backward if all leave together.
  void pack(SentGroup& group) {
    group.payload = add_payload(group.group);
    const Handle last = factors_overlap(input_) ? computed_[to_index(group.group.members.back())]
                                                : step_.backward_end;
    group.packed = step_.tasks.insert_after(
        last,
        step_.task_on(group.payload, doc::TaskKind::copy, doc::Resource::compute, "pack-factors"));
    step_.tasks.wait(group.packed, last);
    if (last == step_.backward_end) step_.backward_end = group.packed;
  }

  // Groups and buckets stand on the network in the order of factor_groups.cpp: a group before its
  // bucket. Factors that are packed after backward may be packed after the last bucket's decode, if
  // computation waits for a coded bucket. Then their sum comes after all collectives of that
  // bucket.
  void sum(std::vector<SentGroup>& groups) {
    const BucketExchange& exchange = step_.exchanges.back();
    const bool waits = !factors_overlap(input_) && exchange.sent_last != kNoTask;
    Handle last = waits ? exchange.sent_last : exchange.send;
    for (SentGroup& group : groups) {
      const doc::Task task =
          step_.task_on(group.payload, doc::TaskKind::all_reduce, doc::Resource::network, "sum");
      const bool is_last = group.group.bucket == step_.exchanges.size();
      group.summed =
          is_last ? step_.tasks.insert_after(last, task)
                  : step_.tasks.insert_before(step_.exchanges[group.group.bucket].first(), task);
      if (is_last) last = group.summed;
      step_.tasks.wait(group.summed, group.packed);
    }
  }

  // The running average of what arrived. It stands before the flags that the step's end waits for.
  void average(const SentGroup& group) {
    const Handle h = step_.append_before_settling(step_.task_on(
        group.payload, doc::TaskKind::copy, doc::Resource::compute, "average-factors"));
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
      doc::Task task = compute_task(doc::TaskKind::copy, step_.operation("average-factors"),
                                    doc::Subject::factors, is_there(a) ? a : g, g);
      task.bytes = (curvature_.elements(a) + curvature_.elements(g)) * size_of(curvature_.dtype);
      task.group = curvature_.factor_group(b, *step_.plan);
      const Handle h = step_.append_before_settling(task);
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
  Handle behind_forward_ = kNoTask;
};

// K-FAC's inverses: by every rank, or by their owner, which sends them; in the order of
// kfac/placement.hpp, as averages arrive or after all of them.

// Puts the inverses into the compute lane in the placement's order, each before the first average
// that no inverse so far needs. So ranks invert while later factors travel.
class Inverses {
 public:
  Inverses(const PassInput& input, StepDraft& step)
      : step_(step), curvature_(*input.curvature), placement_(step.placement) {
    step.placement = curvature_.place(input.cost, step.arrivals);
    if (placement_.behind_arrivals) arrived_ = step.averages.size();
  }

  void run() {
    step_.inverted.assign(to_index(curvature_.factors()), kNoTask);
    is_sent_.assign(to_index(curvature_.factors()), false);
    for (const std::int32_t f : placement_.sent) is_sent_[to_index(f)] = true;
    for (const std::vector<std::int32_t>& call : calls()) invert(call);
    for (const auto message : messages_of(placement_.sent, placement_.ends)) send(message);
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
      const int most = is_sent_[to_index(f)] ? 1 : curvature_.planned(f).most_together;
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
    const std::int16_t operation =
        step_.plan->operation(is_last ? doc::inverse_operation(curvature_.kfac.eigen)
                                      : doc::inverse_with_next_operation());
    doc::Task task = compute_task(doc::TaskKind::inverse, operation, doc::Subject::inverses, f, f);
    task.group = curvature_.inverse_group(owner(f), *step_.plan);
    if (!is_last) return task;
    for (const std::int32_t each : call) {
      const PlannedFactor& factor = curvature_.planned(each);
      task.bytes += curvature_.elements(each) * size_of(curvature_.dtype);
      task.seconds += factor.inverse_s * (call.size() > 1 ? factor.together_share : 1);
    }
    return task;
  }

  /// Puts a task before the first average that nothing needs so far.
  Handle insert(const doc::Task& task) {
    if (arrived_ < step_.averages.size())
      return step_.tasks.insert_before(step_.averages[arrived_], task);
    return step_.append_before_settling(task);
  }

  // A broadcast of these inverses from their owner, once the last one is made.
  void send(std::span<const std::int32_t> message) {
    const doc::Content content =
        curvature_.kfac.eigen ? doc::Content::eigen : doc::Content::inverse;
    doc::Payload payload{.content = content, .dtype = curvature_.dtype};
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
  std::size_t arrived_ = 0;    // averages that inverses so far need
  std::vector<bool> is_sent_;  // by factor
};

// K-FAC's directions. A gradient is multiplied by the inverses of its layer's factors, on the ranks
// that hold those. From there the direction goes to the others; then the KL clip follows.

// A layer's direction is its gradient between the inverses of A and G. It is made as soon as the
// gradient and both inverses are there. The compute lane runs in order, so the order of layers
// decides how long the lane waits.
class Preconditioning {
 public:
  Preconditioning(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        curvature_(*input.curvature),
        done_(curvature_.blocks.size(), kNoTask),
        bucket_of_(bucket_of_gradients(input, step)) {
    if (step.inverted.empty()) step.inverted.assign(to_index(curvature_.factors()), kNoTask);
  }

  void run() {
    if (input_.schedule == Schedule::decoupled) return at_the_head_of_the_next_step();
    precondition_as_inverses_arrive();
    if (curvature_.sends_directions()) send_directions();
    finish();
  }

 private:
  std::int32_t blocks() const { return static_cast<std::int32_t>(curvature_.blocks.size()); }

  std::vector<std::size_t> buckets_of(std::int32_t block) const {
    std::vector<std::size_t> buckets;
    for (const std::int32_t p : curvature_.blocks[to_index(block)].gradients)
      buckets.push_back(bucket_of_[to_index(p)]);
    std::sort(buckets.begin(), buckets.end());
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
    return buckets;
  }

  /// Blocks in the order in which their gradients arrive, the last layer first.
  std::vector<std::int32_t> by_arrival() const {
    std::vector<std::int32_t> order;
    for (std::int32_t b = blocks(); b-- > 0;) order.push_back(b);
    std::ranges::stable_sort(order, {}, [&](std::int32_t b) { return buckets_of(b).back(); });
    return order;
  }

  // ---- inverses arrive one by one: what they complete is preconditioned next ----

  // Blocks that miss no message come first, as their gradients arrive. Then each message is
  // unpacked, and the blocks that it completes follow.
  void precondition_as_inverses_arrive() {
    std::vector<int> missing(to_index(blocks()));
    for (const std::int32_t f : step_.placement.sent) ++missing[to_index(doc::block_of_factor(f))];
    for (const std::int32_t b : by_arrival())
      if (missing[to_index(b)] == 0) precondition(b);
    unpack_inverses([&](std::int32_t f) {
      const std::int32_t block = doc::block_of_factor(f);
      if (--missing[to_index(block)] == 0) precondition(block);
    });
  }

  /// Unpacks one message after the other, each followed by action(factor) for its inverses.
  template <typename Action>
  void unpack_inverses(Action action) {
    const auto messages = messages_of(step_.placement.sent, step_.placement.ends);
    for (std::size_t m = 0; m < step_.inverse_sent.size(); ++m) {
      const Handle h = unpack(step_.inverse_sent[m], "unpack-inverses");
      for (const std::int32_t f : messages[m]) step_.inverted[to_index(f)] = h;
      std::for_each(messages[m].begin(), messages[m].end(), action);
    }
  }

  Handle unpack(Handle sent, const char* operation) {
    doc::Task task = step_.tasks[sent];
    task.kind = doc::TaskKind::copy;
    task.resource = doc::Resource::compute;
    task.operation = step_.operation(operation);
    task.root = -1;
    const Handle h = step_.append_compute(task);
    step_.tasks.wait(h, sent);
    return h;
  }

  doc::Task task_of(std::int32_t block) const {
    doc::Task task = compute_task(
        doc::TaskKind::precondition, step_.operation("precondition"), doc::Subject::inverses,
        doc::factor_index(block, doc::FactorSide::a), doc::factor_index(block, doc::FactorSide::g));
    task.group = curvature_.holder_group(block, *step_.plan);
    task.bytes = direction_elements(block) * size_of(curvature_.dtype);
    task.seconds = curvature_.blocks[to_index(block)].precondition_s;
    return task;
  }
  std::int64_t direction_elements(std::int32_t block) const {
    return gradient_elements(curvature_.blocks[to_index(block)].block);
  }

  void precondition(std::int32_t block) {
    const Handle h = step_.append_compute(task_of(block));
    for (const std::size_t b : buckets_of(block)) step_.tasks.wait(h, step_.exchanges[b].received);
    for (const std::int32_t f : {2 * block, 2 * block + 1})
      if (const Handle inverse = step_.inverted[to_index(f)]; inverse != kNoTask)
        step_.tasks.wait(h, inverse);
    done_[to_index(block)] = h;
    order_.push_back(block);
  }

  // ---- directions ----

  void send_directions() {
    const Broadcasts broadcasts = directions_in_messages();
    const auto messages = messages_of(broadcasts.order, broadcasts.ends);
    std::vector<Handle> sent;
    for (const auto& message : messages) sent.push_back(send(message));
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Handle h = unpack(sent[m], "unpack-directions");
      for (const std::int32_t block : messages[m]) done_[to_index(block)] = h;
    }
  }

  /// Which directions travel together, in the order in which their ranks are done. The ranks of a
  /// row work on different layers; `load_s` adds up what each has done so far.
  Broadcasts directions_in_messages() const {
    std::vector<double> load_s(to_index(curvature_.columns())), done_s;
    std::vector<std::int32_t> root;
    std::vector<std::int64_t> elements;
    for (const std::int32_t b : order_) {
      root.push_back(curvature_.root_among_receivers(b));
      done_s.push_back(load_s[to_index(root.back())] +=
                       curvature_.blocks[to_index(b)].precondition_s);
      elements.push_back(direction_elements(b));
    }
    const BroadcastProblem problem{done_s, root, elements,
                                   seconds_of_messages(input_.cost, Collective::broadcast,
                                                       curvature_.columns(), curvature_.dtype)};
    Broadcasts broadcasts =
        curvature_.kfac.fuses_broadcasts ? fuse_broadcasts(problem) : send_each(problem);
    for (std::int32_t& member : broadcasts.order) member = order_[to_index(member)];
    return broadcasts;
  }

  Handle send(std::span<const std::int32_t> message) {
    doc::Payload payload{.content = doc::Content::directions, .dtype = curvature_.dtype};
    for (const std::int32_t block : message) payload.elements += direction_elements(block);
    const Handle h = step_.tasks.append(
        step_.broadcast_of(payload, message, curvature_.direction_group(*step_.plan),
                           curvature_.root_among_receivers(message.front())));
    for (const std::int32_t block : message) step_.tasks.wait(h, done_[to_index(block)]);
    return h;
  }

  // ---- the update ----

  /// The clip needs every direction; without it the optimizer does.
  void finish() {
    std::vector<Handle> all = done_;
    if (curvature_.kfac.clips) {
      const Handle h =
          step_.append_compute(compute_task(doc::TaskKind::precondition, step_.operation("clip")));
      for (const Handle direction : all) step_.tasks.wait(h, direction);
      all = {h};
    }
    step_.settling.insert(step_.settling.end(), all.begin(), all.end());
  }

  // ---- decoupled ----

  /// With a decoupled exchange whole gradients arrive under the next forward pass. So a layer is
  /// preconditioned in the next step, before its weight is updated and used. The first step has
  /// nothing to precondition.
  void at_the_head_of_the_next_step() {
    unpack_inverses([](std::int32_t) {});
    step_.preconditioned.assign(done_.size(), kNoTask);
    if (input_.first_step) return;
    for (std::int32_t block = 0; block < blocks(); ++block) {
      doc::Task task = task_of(block);
      task.origin = doc::Origin::observed;
      step_.preconditioned[to_index(block)] =
          step_.tasks.insert_before(first_update_of(block), task);
    }
  }

  /// Updates were put into the lane one by one, from its head on.
  Handle first_update_of(std::int32_t block) const {
    Handle first = kNoTask;
    for (const std::size_t b : buckets_of(block)) first = std::min(first, step_.updates[b]);
    LINERATE_CHECK(first != kNoTask, "a bucket without an update");
    return first;
  }

  const PassInput& input_;
  StepDraft& step_;
  const Curvature& curvature_;
  std::vector<Handle> done_;            // by block: its direction is there, on every rank
  std::vector<std::size_t> bucket_of_;  // by position
  std::vector<std::int32_t> order_;     // blocks, as they are preconditioned
};

}  // namespace

void add_factors(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.factors) Factors(input, step).run();
}

void add_inverses(const PassInput& input, StepDraft& step) {
  if (input.curvature && input.update.inverses) Inverses(input, step).run();
}

void add_preconditioning(const PassInput& input, StepDraft& step) {
  if (input.curvature) Preconditioning(input, step).run();
}

}  // namespace linerate::plan
