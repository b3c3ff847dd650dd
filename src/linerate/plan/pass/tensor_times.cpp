#include "linerate/plan/pass/tensor_times.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// The tensors that a payload stands for; flags and the like are one.
std::int32_t tensors_of(const doc::TaskGraph& graph, std::int32_t index) {
  const doc::Payload* payload = &graph.payloads[to_index(index)];
  while (payload->of >= 0) payload = &graph.payloads[to_index(payload->of)];
  return std::max(1, payload->end - payload->begin);
}

}  // namespace

std::int64_t tensors_of(const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.subject != doc::Subject::payloads) return 0;
  std::int64_t tensors = 0;
  for (std::int32_t p = task.first; p <= task.last; ++p) tensors += tensors_of(graph, p);
  return tensors;
}

void add_tensor_times(double tensor_s, doc::TaskGraph& graph) {
  if (!(tensor_s > 0)) return;
  for (doc::Task& task : graph.tasks)
    if (doc::is_communication(task.kind))
      task.seconds += tensor_s * static_cast<double>(tensors_of(graph, task));
}

}  // namespace linerate::plan
