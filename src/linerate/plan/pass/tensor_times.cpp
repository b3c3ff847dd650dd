#include "linerate/plan/pass/tensor_times.hpp"

#include <algorithm>

namespace linerate::plan {
namespace {

/// Of what a payload stands for; flags and the like are one.
std::int32_t tensors_of(const doc::TaskGraph& graph, std::int32_t index) {
  const doc::Payload* payload = &graph.payloads[static_cast<std::size_t>(index)];
  while (payload->of >= 0) payload = &graph.payloads[static_cast<std::size_t>(payload->of)];
  return std::max(1, payload->end - payload->begin);
}

}  // namespace

void add_tensor_times(double tensor_s, doc::TaskGraph& graph) {
  if (!(tensor_s > 0)) return;
  for (doc::Task& task : graph.tasks) {
    if (!doc::is_communication(task.kind) || task.subject != doc::Subject::payloads) continue;
    for (std::int32_t p = task.first; p <= task.last; ++p)
      task.seconds += tensor_s * tensors_of(graph, p);
  }
}

}  // namespace linerate::plan
