// K-FAC's directions. A gradient is multiplied by the inverses of its layer's factors, on the ranks
// that hold those. From there the direction goes to the others; then the KL clip follows.
#include <algorithm>
#include <span>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/kfac/broadcast_fusion.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

// A layer's direction is its gradient between the inverses of A and G. It is made as soon as the
// gradient and both inverses are there. The compute lane runs in order, so the order of layers
// decides how long the lane waits.
class Preconditioning {
 public:
  Preconditioning(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        curvature_(*input.curvature),
        done_(curvature_.blocks.size(), kNoTask) {
    if (step.inverted.empty()) step.inverted.assign(to_index(curvature_.factors()), kNoTask);
    find_buckets();
  }

  void run() {
    if (input_.schedule == Schedule::decoupled) return at_the_head_of_the_next_step();
    precondition_as_inverses_arrive();
    if (curvature_.sends_directions()) send_directions();
    finish();
  }

 private:
  std::int32_t blocks() const { return static_cast<std::int32_t>(curvature_.blocks.size()); }

  void find_buckets() {
    bucket_of_.resize(input_.workload.gradients.size());
    for (std::size_t b = 0; b < step_.exchanges.size(); ++b) {
      const doc::Payload& bucket = step_.graph->payloads[b];
      for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
        bucket_of_[to_index(step_.graph->members[to_index(m)])] = b;
    }
  }
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
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
      return buckets_of(x).back() < buckets_of(y).back();
    });
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
    for (std::size_t m = 0; m < step_.inverse_sent.size(); ++m)
      for (const std::int32_t f : unpack_inverses(m))
        if (--missing[to_index(doc::block_of_factor(f))] == 0)
          precondition(doc::block_of_factor(f));
  }

  /// Those of a message.
  std::span<const std::int32_t> unpack_inverses(std::size_t message) {
    const Handle sent = step_.inverse_sent[message];
    const Handle h = step_.append_compute(unpacking(sent, "unpack-inverses"));
    step_.tasks.wait(h, sent);
    const Placement& placement = step_.placement;
    const std::size_t begin = message == 0 ? 0 : to_index(placement.ends[message - 1]);
    const auto members =
        std::span(placement.sent).subspan(begin, to_index(placement.ends[message]) - begin);
    for (const std::int32_t f : members) step_.inverted[to_index(f)] = h;
    return members;
  }

  doc::Task unpacking(Handle sent, const char* operation) const {
    doc::Task task = step_.tasks[sent];
    task.kind = doc::TaskKind::copy;
    task.resource = doc::Resource::compute;
    task.operation = step_.operation(operation);
    task.root = -1;
    return task;
  }

  doc::Task task_of(std::int32_t block) const {
    doc::Task task;
    task.kind = doc::TaskKind::precondition;
    task.resource = doc::Resource::compute;
    task.subject = doc::Subject::inverses;
    task.operation = step_.operation("precondition");
    task.group = curvature_.holder_group(block, *step_.plan);
    task.first = doc::factor_index(block, doc::FactorSide::a);
    task.last = doc::factor_index(block, doc::FactorSide::g);
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
    std::vector<std::span<const std::int32_t>> messages;
    std::size_t begin = 0;
    for (const std::int32_t end : broadcasts.ends) {
      messages.push_back(std::span(broadcasts.order).subspan(begin, to_index(end) - begin));
      begin = to_index(end);
    }
    std::vector<Handle> sent;
    for (const auto& message : messages) sent.push_back(send(message));
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Handle h = step_.append_compute(unpacking(sent[m], "unpack-directions"));
      step_.tasks.wait(h, sent[m]);
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
    const BroadcastProblem problem{
        done_s, root, elements,
        seconds_of_broadcasts(input_.cost, curvature_.columns(), curvature_.dtype)};
    Broadcasts broadcasts =
        curvature_.kfac.fuses_broadcasts ? fuse_broadcasts(problem) : send_each(problem);
    for (std::int32_t& member : broadcasts.order) member = order_[to_index(member)];
    return broadcasts;
  }

  Handle send(std::span<const std::int32_t> message) {
    doc::Payload payload;
    payload.content = doc::Content::directions;
    payload.dtype = curvature_.dtype;
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
      doc::Task clip;
      clip.kind = doc::TaskKind::precondition;
      clip.resource = doc::Resource::compute;
      clip.operation = step_.operation("clip");
      const Handle h = step_.append_compute(clip);
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
    for (std::size_t m = 0; m < step_.inverse_sent.size(); ++m) unpack_inverses(m);
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

void add_preconditioning(const PassInput& input, StepDraft& step) {
  if (input.curvature) Preconditioning(input, step).run();
}

}  // namespace linerate::plan
