// Edges from a step into the next one, for decoupled exchanges. Their all-gathers end under the
// next forward pass, and each update at the head of the next step waits for the gradients that it
// needs. An example: a step sends the buckets {2, 3} and {0, 1}, by tasks 7 and 9. In the next step
// an update of the gradients {1, 2} waits for tasks 7 and 9. If the next step's buckets are others,
// the edges still follow the gradients and not the buckets.
#include "linerate/plan/step_border.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::plan {

// Notes for each gradient the task that brings it back, and for each update at the head of a step
// the gradients that it needs. Preconditioning of a layer counts as such an update.
void find_border(const doc::Workload& workload, const StepDraft& step, const Curvature* curvature,
                 StepBorder& border) {
  border.needs.clear();
  border.arrival.resize(workload.gradients.size());
  const std::span<const std::int32_t> members = step.graph->members;
  const auto members_of = [&](std::size_t bucket) {
    const doc::Payload& payload = step.graph->payloads[bucket];
    return members.subspan(to_index(payload.begin), to_index(payload.end - payload.begin));
  };
  for (std::size_t b = 0; b < step.exchanges.size(); ++b) {
    const std::uint32_t received = step.tasks.position(step.exchanges[b].received);
    for (const std::int32_t p : members_of(b)) border.arrival[to_index(p)] = received;
  }
  const auto need = [&](Handle task, std::span<const std::int32_t> gradients) {
    if (task != kNoTask) border.needs.push_back({step.tasks.position(task), gradients});
  };
  for (std::size_t b = 0; b < step.updates.size(); ++b) need(step.updates[b], members_of(b));
  for (std::size_t b = 0; b < step.preconditioned.size(); ++b)
    need(step.preconditioned[b], curvature->blocks[b].gradients);
}

void join_steps(const StepBorder& from, doc::TaskGraph& graph, const StepBorder& to,
                std::int32_t variant) {
  std::vector<std::uint32_t> arrivals;
  for (const auto& [task, gradients] : to.needs) {
    arrivals.clear();
    for (const std::int32_t p : gradients) {
      const std::uint32_t arrival = from.arrival[to_index(p)];
      if (arrivals.empty() || arrivals.back() != arrival) arrivals.push_back(arrival);
    }
    std::sort(arrivals.begin(), arrivals.end());
    arrivals.erase(std::unique(arrivals.begin(), arrivals.end()), arrivals.end());
    for (const std::uint32_t arrival : arrivals)
      graph.next_step.push_back({arrival, task, variant});
  }
}

}  // namespace linerate::plan
