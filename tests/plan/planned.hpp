// Plans of strategies by their text, and what they take.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/plan/make_plan.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::support {

inline doc::Plan planned(const std::string& strategy, const doc::Workload& workload,
                         const doc::Cluster& cluster, int ranks = 2,
                         const plan::PlanOptions& options = {}) {
  return plan::make_plan(workload, cluster, doc::parse_strategy(strategy), ranks, options);
}

/// The simulated step.
inline double step_s(const doc::Plan& plan, const doc::Cluster& cluster) {
  return sim::simulate(plan, cost::CostModel(cluster)).step_s;
}
inline double step_s(const std::string& strategy, const doc::Workload& workload,
                     const doc::Cluster& cluster, int ranks = 2) {
  return step_s(planned(strategy, workload, cluster, ranks, {.first_step = false}), cluster);
}

/// What training plans besides.
inline plan::PlanOptions training(std::int64_t buffer_bytes = 100) {
  return {.housekeeping = plan::Housekeeping{buffer_bytes}};
}

/// The payload that a task is about, or the first of them.
inline const doc::Payload& payload_of(const doc::TaskGraph& graph, const doc::Task& task) {
  return graph.payloads[to_index(task.first)];
}

/// The collectives of a step, in their order.
inline std::vector<doc::Task> collectives_of(const doc::TaskGraph& graph) {
  std::vector<doc::Task> all;
  for (const doc::Task& task : graph.tasks)
    if (doc::is_communication(task.kind)) all.push_back(task);
  return all;
}

}  // namespace linerate::support
