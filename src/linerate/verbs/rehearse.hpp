// A Plan rehearsed on the network at hand, next to what the simulator predicts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/exec/rehearse.hpp"

namespace linerate::verbs {

/// Measures what collectives between these ranks cost. The same on every rank. Collective.
doc::Cluster probe_network(comm::Communicator& communicator,
                           const calibrate::CollectiveProbeOptions& options);

/// A Plan, and what prices it: contention and slow ranks are not in it, as a rehearsed computation
/// waits for as long as the Workload says, on every rank.
struct PricedPlan {
  std::shared_ptr<const doc::Plan> plan;
  std::optional<cost::CostModel> model;  // absent: nothing prices it
  std::vector<std::string> notes = {};   // on its compressor (Planner::coding_caveats)
};
PricedPlan with_prices(doc::Plan plan, const std::optional<doc::Cluster>& cluster);

/// Plans a strategy for the communicator's ranks, on a network of this bandwidth (absent: the
/// Cluster's). What cannot be planned is thrown on every rank. Collective.
PricedPlan plan_strategy(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const doc::Strategy& strategy,
                         std::optional<BytesPerSecond> bandwidth = {});

/// Complete on rank 0; elsewhere only the Plan.
struct Rehearsed {
  std::shared_ptr<const doc::Plan> plan;
  doc::Timeline measured;
  std::optional<doc::Timeline> predicted;  // absent: nothing prices the Plan
  compare::ComparedRow step, exposed;      // what is not predicted has no noise either
  std::vector<std::string> notes;          // on the prediction, and on the compressor
};
/// Throws as exec::rehearse(). Collective.
Rehearsed rehearse(comm::Communicator& communicator, const PricedPlan& priced,
                   const exec::RehearsalOptions& options);

}  // namespace linerate::verbs
