#include "linerate/plan/compute_tasks.hpp"

#include <algorithm>

namespace linerate::plan {
namespace {

bool every_layer_timed(const doc::Workload& workload) {
  return !workload.layers.empty() &&
         std::all_of(workload.layers.begin(), workload.layers.end(),
                     [](const doc::Layer& layer) { return layer.forward_s.has_value(); });
}

}  // namespace

StepParts parts_of(const doc::Workload& w) {
  StepParts parts;
  parts.backward_s =
      w.gradients.empty() ? w.backward_s : std::max(w.backward_s, w.gradients.back().ready_s);
  const double outside = std::max(0.0, w.one_rank_step_s() - parts.backward_s);
  const double known = w.forward_s.value_or(0) + w.update_s.value_or(0) + w.tail_s.value_or(0);
  const double shrink = known > outside ? outside / known : 1;
  const double rest = std::max(0.0, outside - known);
  parts.update_s = w.update_s.value_or(0) * shrink;
  parts.tail_s = w.tail_s.value_or(0) * shrink;
  if (w.forward_s) {
    parts.forward_s = *w.forward_s * shrink;
    parts.tail_s += rest;
  } else {
    parts.forward_s = rest;
  }
  return parts;
}

doc::Task compute_task(doc::TaskKind kind, double seconds, std::int32_t first, std::int32_t last) {
  doc::Task task;
  task.kind = kind;
  task.origin = doc::Origin::observed;
  task.resource = doc::Resource::compute;
  task.first = first;
  task.last = last;
  task.seconds = seconds;
  return task;
}

std::uint32_t add_forward(const doc::Workload& workload, double forward_s, doc::TaskGraph& graph) {
  const auto layers = static_cast<std::int32_t>(workload.layers.size());
  if (!every_layer_timed(workload))
    return graph.add(compute_task(doc::TaskKind::forward, forward_s, 0, layers - 1));
  double sum = 0;
  for (const doc::Layer& layer : workload.layers) sum += *layer.forward_s;
  // Layers timed one by one may add up to more than the pass they belong to.
  const double shrink = sum > forward_s && sum > 0 ? forward_s / sum : 1;
  for (std::int32_t l = 0; l < layers; ++l)
    graph.add(compute_task(doc::TaskKind::forward,
                           *workload.layers[static_cast<std::size_t>(l)].forward_s * shrink, l, l));
  // The loss, and whatever else no layer claims.
  if (const double rest = forward_s - sum * shrink; rest > 0)
    graph.add(compute_task(doc::TaskKind::forward, rest));
  return static_cast<std::uint32_t>(graph.tasks.size() - 1);
}

void add_backward(const doc::Workload& workload, std::int32_t next, std::int32_t until,
                  doc::TaskGraph& graph) {
  double before = next > 0 ? workload.gradients[static_cast<std::size_t>(next) - 1].ready_s : 0;
  for (; next < until; ++next) {
    const double ready = workload.gradients[static_cast<std::size_t>(next)].ready_s;
    graph.add(compute_task(doc::TaskKind::backward, ready - before, next, next));
    before = ready;
  }
}

void add_backward_rest(const doc::Workload& workload, doc::TaskGraph& graph) {
  const double last = workload.gradients.empty() ? 0 : workload.gradients.back().ready_s;
  if (workload.backward_s > last)
    graph.add(compute_task(doc::TaskKind::backward, workload.backward_s - last));
}

}  // namespace linerate::plan
