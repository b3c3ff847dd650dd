// Picks the cheapest way to simulate a graph that is still exact for it.
#pragma once

#include <cstdint>
#include <span>

#include "linerate/sim/prices.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

/// Whether computation and communication slow each other down.
bool contends(const Prices& prices);

/// Simulates a graph: by one sweep if ranks are alike and nothing contends, by a sweep over classes
/// if ranks differ in speed or groups. If the Cluster says that computation and communication slow
/// each other down, by events. The graph is a variant of the plan or several, unrolled.
/// `step_begins`: the first task of each step, where delays are due. Returns the end of the last
/// task, in seconds. `starts` off may leave times.start untouched.
double run_graph(const doc::Plan& plan, const doc::TaskGraph& graph, Prices& prices,
                 std::span<const std::uint32_t> step_begins, TaskTimes& times, bool starts);

/// The same for steps that were laid out. Joins them only if it has to.
double run_steps(Unrolled& steps, Prices& prices, TaskTimes& times, bool starts);
/// Whether run_steps() needs no classes, all ranks being alike.
bool are_alike(const Unrolled& steps, const doc::Cluster& cluster);

}  // namespace linerate::sim
