// Plans of every strategy of the registry for networks of the zoo.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "agreement/cases.hpp"
#include "exec/streams/stream_jobs.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::support {

inline Setting zoo_setting(const std::string& model) {
  models::WorkloadOptions options;
  options.batch = 32;
  options.step_s = 0.1;
  return {model, models::workload(model, options), false};
}

/// Null if the strategy does not fit.
inline std::shared_ptr<const doc::Plan> zoo_plan(const Setting& setting,
                                                 const std::string& strategy, int ranks,
                                                 bool training) {
  auto plan = plan_of(strategy, setting, cluster_of(setting, ranks), ranks, training);
  return plan ? std::make_shared<const doc::Plan>(*std::move(plan)) : nullptr;
}

/// The schedule's beginning, so many of its cycles, and the step after them.
inline int steps_of(const doc::Plan& plan, std::size_t cycles) {
  return static_cast<int>(plan.warm_up.size() + cycles * plan.cycle.size() + 1);
}

/// A plan for 1 to `most_ranks` ranks, a number for it, and the order of its steps.
struct PlannedCase {
  std::shared_ptr<const doc::Plan> plan;
  std::uint64_t seed = 0;
  Order order = Order::of_the_plan;
};

/// One for each strategy that fits the network.
inline std::vector<PlannedCase> planned_cases(const std::string& model, int most_ranks) {
  const Setting setting = zoo_setting(model);
  std::vector<PlannedCase> all;
  for (const std::string& strategy : strategies()) {
    const auto n = static_cast<int>(all.size());
    auto plan = zoo_plan(setting, strategy, 1 + n % most_ranks, n % 2 == 0);
    if (!plan) continue;
    const Order order = (n + 1) % 3 ? Order::of_the_plan : Order::of_its_own;
    all.push_back({std::move(plan), static_cast<std::uint64_t>(n), order});
  }
  return all;
}

}  // namespace linerate::support
