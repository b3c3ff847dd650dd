// K-FAC's directions: gradients between the inverses of their layer's factors, on the ranks that
// hold those, and from there to the others; then the KL clip.
#include <algorithm>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

class Preconditioning {
 public:
  Preconditioning(const PassInput& input, StepDraft& step)
      : input_(input),
        step_(step),
        curvature_(*input.curvature),
        done_(curvature_.blocks.size(), kNoTask) {
    if (step.inverse_sent.empty()) step.inverse_sent.assign(at(curvature_.factors()), kNoTask);
    if (step.inverted.empty()) step.inverted.assign(at(curvature_.factors()), kNoTask);
    find_buckets();
  }

  void run() {
    if (input_.schedule == Schedule::decoupled) return at_the_head_of_the_next_step();
    precondition_as_inverses_arrive();
    if (curvature_.sends_directions()) send_directions();
    finish();
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::int32_t blocks() const { return static_cast<std::int32_t>(curvature_.blocks.size()); }

  void find_buckets() {
    bucket_of_.resize(input_.workload.gradients.size());
    for (std::size_t b = 0; b < step_.exchanges.size(); ++b) {
      const doc::Payload& bucket = step_.graph->payloads[b];
      for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
        bucket_of_[at(step_.graph->members[at(m)])] = b;
    }
  }
  std::vector<std::size_t> buckets_of(std::int32_t block) const {
    std::vector<std::size_t> buckets;
    for (const std::int32_t p : curvature_.blocks[at(block)].gradients)
      buckets.push_back(bucket_of_[at(p)]);
    std::sort(buckets.begin(), buckets.end());
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
    return buckets;
  }

  /// As their gradients arrive, where inverses do not.
  std::vector<std::int32_t> by_arrival() const {
    std::vector<std::int32_t> order;
    for (std::int32_t b = blocks(); b-- > 0;) order.push_back(b);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
      return buckets_of(x).back() < buckets_of(y).back();
    });
    return order;
  }

  bool travels(std::int32_t f) const { return step_.inverse_sent[at(f)] != kNoTask; }

  // ---- inverses arrive one by one: what they complete is preconditioned next ----

  void precondition_as_inverses_arrive() {
    std::vector<int> missing(at(blocks()));
    for (std::int32_t f = 0; f < curvature_.factors(); ++f)
      missing[at(doc::block_of_factor(f))] += travels(f);
    for (const std::int32_t b : by_arrival())
      if (missing[at(b)] == 0) precondition(b);
    for (const std::int32_t f : curvature_.inverses.sent) {
      if (!travels(f)) continue;
      unpack_inverse(f);
      if (--missing[at(doc::block_of_factor(f))] == 0) precondition(doc::block_of_factor(f));
    }
  }

  void unpack_inverse(std::int32_t f) {
    const Handle sent = step_.inverse_sent[at(f)];
    const Handle h = step_.append_compute(unpacking(sent, "unpack-inverses"));
    step_.tasks.wait(h, sent);
    step_.inverted[at(f)] = h;
  }

  doc::Task unpacking(Handle sent, const char* operation) const {
    doc::Task task = step_.tasks[sent];
    task.kind = doc::TaskKind::copy;
    task.resource = doc::Resource::compute;
    task.operation = step_.plan->operation({operation, {}});
    task.root = -1;
    return task;
  }

  doc::Task task_of(std::int32_t block) const {
    doc::Task task;
    task.kind = doc::TaskKind::precondition;
    task.resource = doc::Resource::compute;
    task.subject = doc::Subject::inverses;
    task.operation = step_.plan->operation({"precondition", {}});
    task.group = curvature_.holding(block, *step_.plan);
    task.first = doc::factor_index(block, doc::FactorSide::a);
    task.last = doc::factor_index(block, doc::FactorSide::g);
    task.bytes = direction_elements(block) * size_of(curvature_.dtype);
    task.seconds = curvature_.blocks[at(block)].precondition_s;
    return task;
  }
  std::int64_t direction_elements(std::int32_t block) const {
    return gradient_elements(curvature_.blocks[at(block)].block);
  }

  void precondition(std::int32_t block) {
    const Handle h = step_.append_compute(task_of(block));
    for (const std::size_t b : buckets_of(block)) step_.tasks.wait(h, step_.exchanges[b].received);
    for (const std::int32_t f : {2 * block, 2 * block + 1})
      if (const Handle inverse = step_.inverted[at(f)]; inverse != kNoTask)
        step_.tasks.wait(h, inverse);
    done_[at(block)] = h;
    order_.push_back(block);
  }

  // ---- directions ----

  void send_directions() {
    sort_by_end(order_);
    const std::int32_t group = curvature_.receiving(*step_.plan);
    std::vector<Handle> sent;
    for (const std::int32_t block : order_) sent.push_back(send(block, group));
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const Handle h = step_.append_compute(unpacking(sent[i], "unpack-directions"));
      step_.tasks.wait(h, sent[i]);
      done_[at(order_[i])] = h;
    }
  }

  /// By when the rank in charge is done with them: in each row another one works on another layer.
  void sort_by_end(std::vector<std::int32_t>& order) const {
    std::vector<double> load_s(at(curvature_.columns())), end_s(at(blocks()));
    for (const std::int32_t b : order)
      end_s[at(b)] = load_s[at(curvature_.root_among_receivers(b))] +=
          curvature_.blocks[at(b)].precondition_s;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t x, std::int32_t y) { return end_s[at(x)] < end_s[at(y)]; });
  }

  Handle send(std::int32_t block, std::int32_t group) {
    doc::Payload payload;
    payload.content = doc::Content::directions;
    payload.dtype = curvature_.dtype;
    payload.begin = static_cast<std::int32_t>(step_.graph->members.size());
    payload.end = payload.begin + 1;
    payload.elements = payload.padded = direction_elements(block);
    step_.graph->members.push_back(block);
    doc::Task task;
    task.kind = doc::TaskKind::broadcast;
    task.resource = doc::Resource::network;
    task.subject = doc::Subject::payloads;
    task.wire = curvature_.dtype;
    task.operation = step_.plan->operation({"move", {}});
    task.group = group;
    task.root = curvature_.root_among_receivers(block);
    task.bytes = payload.bytes();
    task.first = task.last = step_.add_payload(payload);
    const Handle h = step_.tasks.append(task);
    step_.tasks.wait(h, done_[at(block)]);
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
      clip.operation = step_.plan->operation({"clip", {}});
      const Handle h = step_.append_compute(clip);
      for (const Handle direction : all) step_.tasks.wait(h, direction);
      all = {h};
    }
    step_.settling.insert(step_.settling.end(), all.begin(), all.end());
  }

  // ---- decoupled ----

  /// Whole gradients arrive under the next forward pass. Before the first step there is none.
  void at_the_head_of_the_next_step() {
    for (const std::int32_t f : curvature_.inverses.sent)
      if (travels(f)) unpack_inverse(f);
    step_.preconditioned.assign(done_.size(), kNoTask);
    if (input_.first_step) return;
    for (std::int32_t block = 0; block < blocks(); ++block)
      step_.preconditioned[at(block)] =
          step_.tasks.insert_before(first_update_of(block), task_of(block));
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
