#include "linerate/plan/step_border.hpp"

#include <algorithm>

namespace linerate::plan {

StepBorder border_of(const doc::Workload& workload, const StepDraft& step,
                     const Curvature* curvature) {
  StepBorder border;
  border.arrival.resize(workload.gradients.size());
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
      border.arrival[static_cast<std::size_t>(step.graph->members[static_cast<std::size_t>(m)])] =
          step.tasks.position(step.exchanges[b].received);
  }
  const auto need = [&](Handle task, std::vector<std::int32_t> gradients) {
    if (task != kNoTask) border.needs.push_back({step.tasks.position(task), std::move(gradients)});
  };
  for (std::size_t b = 0; b < step.updates.size(); ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    const auto members = step.graph->members.begin();
    need(step.updates[b], {members + bucket.begin, members + bucket.end});
  }
  for (std::size_t b = 0; b < step.preconditioned.size(); ++b)
    need(step.preconditioned[b], curvature->blocks[b].gradients);
  return border;
}

void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                std::int32_t variant) {
  std::vector<std::uint32_t> arrivals;
  for (const auto& [task, gradients] : to.needs) {
    arrivals.clear();
    for (const std::int32_t p : gradients)
      arrivals.push_back(from.arrival[static_cast<std::size_t>(p)]);
    std::sort(arrivals.begin(), arrivals.end());
    arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
    for (const std::uint32_t arrival : arrivals)
      graph.next_step.push_back({arrival, task, variant});
  }
}

}  // namespace linerate::plan
