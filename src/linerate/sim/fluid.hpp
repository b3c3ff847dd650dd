// Discrete events with contention. Computation and communication of a rank slow each other down by
// the Cluster's factors while both are active, and so do computation and coding.
#pragma once

#include <cstdint>
#include <span>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"

namespace linerate::sim {

/// Simulates a graph whose computation and communication contend. Returns the end of the last task,
/// in seconds; `times` receives the start and end of every slot.
///
/// - Computation means the resources compute and codec. Host tasks and delays slow nothing.
/// - A collective transfers once all ranks of its part have come to it. It slows computation from
///   then on; a rank that waits for the others is not slowed.
/// - A collective runs at the pace of its slowest rank: it is slowed while any rank of its part
///   computes.
/// - A broadcast waits for its root alone (BroadcastTime).
/// - Computation and coding of one rank slow each other down, too.
/// - While a rank waits out the Cluster's delay before a collective, it does not transfer.
///
/// With all factors 1 the result is the sweep's. `step_begins`: the first task of each step.
double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times);

}  // namespace linerate::sim
