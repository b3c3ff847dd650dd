// Discrete events with contention: computation and communication of a rank slow each other down by
// the Cluster's factors for as long as both are active, and so do computation and coding.
#pragma once

#include <cstdint>
#include <span>

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"

namespace linerate::sim {

/// Computation means the resources compute and codec; host tasks and delays slow nothing. A
/// collective transfers, and slows computation, once all ranks of its part have come to it; a rank
/// that waits for the others does not. It runs at the pace of its slowest: it is slowed while any
/// rank of its part computes. A broadcast waits for its root alone (BroadcastTime). What a rank
/// computes and what it codes slow each other down, too. While a rank waits out the Cluster's delay
/// before a collective, it does not transfer. With all factors 1 the result is the sweep's. Returns
/// the end of the last task.
double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times);

}  // namespace linerate::sim
