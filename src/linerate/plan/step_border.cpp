#include "linerate/plan/step_border.hpp"

#include <algorithm>

namespace linerate::plan {

StepBorder border_of(const doc::Workload& workload, const StepDraft& step) {
  StepBorder border;
  border.arrival.resize(workload.gradients.size());
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const doc::Payload& bucket = step.graph->payloads[b];
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
      border.arrival[static_cast<std::size_t>(step.graph->members[static_cast<std::size_t>(m)])] =
          step.tasks.position(step.exchanges[b].received);
  }
  for (std::size_t b = 0; b < step.updates.size(); ++b)
    if (step.updates[b] != kNoTask)
      border.updates.emplace_back(step.tasks.position(step.updates[b]),
                                  static_cast<std::int32_t>(b));
  return border;
}

void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                const doc::TaskGraph& next, std::int32_t variant) {
  std::vector<std::uint32_t> arrivals;
  for (const auto& [update, b] : to.updates) {
    const doc::Payload& bucket = next.payloads[static_cast<std::size_t>(b)];
    arrivals.clear();
    for (std::int32_t m = bucket.begin; m < bucket.end; ++m)
      arrivals.push_back(
          from.arrival[static_cast<std::size_t>(next.members[static_cast<std::size_t>(m)])]);
    std::sort(arrivals.begin(), arrivals.end());
    arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
    for (const std::uint32_t arrival : arrivals)
      graph.next_step.push_back({arrival, update, variant});
  }
}

}  // namespace linerate::plan
