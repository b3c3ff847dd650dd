// The first pass. Forward, backward and the rest of the step become tasks of the compute lane, as
// the Workload times them. They are observed tasks: in training autograd runs them and reports
// their ends.
#include "linerate/plan/pass/compute.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {
namespace {

constexpr std::string_view kAutograd = "autograd";

// One task for each layer if every layer's time is known, else one for all. Layers that were timed
// one by one may add up to more than the pass; then all shrink alike. What they do not claim comes
// last.
void add_forward(const doc::Workload& w, double forward_s, StepDraft& step) {
  const auto layers = static_cast<std::int32_t>(w.layers.size());
  const doc::Task common = observed_task(doc::TaskKind::forward, step.operation(kAutograd), 0);
  const auto add = [&](double seconds, std::int32_t first, std::int32_t last) {
    step.forward.push_back(step.tasks.append(common));
    doc::Task& task = step.tasks[step.forward.back()];
    task.seconds = seconds;
    task.subject = first <= last ? doc::Subject::layers : doc::Subject::none;
    task.first = first;
    task.last = last;
  };
  if (!every_layer_timed(w)) return add(forward_s, 0, layers - 1);
  double sum = 0;
  for (const doc::Layer& layer : w.layers) sum += *layer.forward_s;
  // Layers timed one by one may add up to more than the pass they belong to.
  const double shrink = sum > forward_s && sum > 0 ? forward_s / sum : 1;
  for (std::int32_t l = 0; l < layers; ++l) add(*w.layers[to_index(l)].forward_s * shrink, l, l);
  // The loss, and whatever else no layer claims.
  if (const double rest = forward_s - sum * shrink; rest > 0) add(rest, 0, -1);
}

// A backward task for each gradient, which ends when the gradient is ready, and one for the rest.
// In training there always is a rest, because only the caller knows that no further gradient will
// come.
void add_backward(const doc::Workload& w, bool in_training, StepDraft& step) {
  doc::Task common = observed_task(doc::TaskKind::backward, step.operation(kAutograd), 0);
  common.subject = doc::Subject::gradients;
  double before = 0;
  for (std::size_t p = 0; p < w.gradients.size(); ++p) {
    step.ready.push_back(step.tasks.append(common));
    doc::Task& task = step.tasks[step.ready.back()];
    task.first = task.last = static_cast<std::int32_t>(p);
    task.seconds = w.gradients[p].ready_s - before;
    before = w.gradients[p].ready_s;
  }
  step.backward = step.ready;
  if (w.backward_s > before || in_training)
    step.tasks.append(observed_task(doc::TaskKind::backward, common.operation,
                                    std::max(0.0, w.backward_s - before)));
  step.backward_end = step.tasks.last(doc::Resource::compute);
}

}  // namespace

bool every_layer_timed(const doc::Workload& workload) {
  return !workload.layers.empty() &&
         std::all_of(workload.layers.begin(), workload.layers.end(),
                     [](const doc::Layer& layer) { return layer.forward_s.has_value(); });
}

bool gradients_know_layers(const doc::Workload& workload) {
  return std::all_of(workload.gradients.begin(), workload.gradients.end(),
                     [](const doc::Gradient& g) { return g.layer >= 0; });
}

doc::Task observed_task(doc::TaskKind kind, std::int16_t operation, double seconds) {
  doc::Task task;
  task.kind = kind;
  task.origin = doc::Origin::observed;
  task.resource = doc::Resource::compute;
  task.operation = operation;
  task.seconds = seconds;
  return task;
}

void add_compute(const doc::Workload& workload, bool in_training, StepDraft& step) {
  const doc::OneRankParts parts = parts_of(workload);
  add_forward(workload, parts.forward_s, step);
  add_backward(workload, in_training, step);
  if (parts.tail_s > 0)
    step.tail =
        step.tasks.append(observed_task(doc::TaskKind::host, step.operation("tail"), parts.tail_s));
}

}  // namespace linerate::plan
