// Without contention one pass over the tasks is the whole simulation. A task's start follows from
// its predecessors, its resource and a collective's delay, which are all earlier in the Plan.
#pragma once

#include <cstdint>
#include <span>

#include "linerate/doc/plan.hpp"
#include "linerate/sim/prices.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/task_times.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

/// For ranks that are alike and in every task's group. Returns the end of the last task; `starts`
/// off leaves times.start untouched.
double sweep(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times, bool starts);
/// The same of several steps, which need not be joined: it is what the sweep over their graph would
/// give, bit for bit.
double sweep(const Unrolled& steps, Prices& prices, TaskTimes& times, bool starts);

/// For ranks in classes. A collective starts for each class when the class has come to it. It ends
/// for the classes of a part together, its price after the last of them started. A broadcast waits
/// for its root alone (BroadcastTime). `step_begins`: the first task of each step in the graph,
/// where delays are due. Returns the end of the last task, in seconds.
double sweep(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
             std::span<const std::uint32_t> step_begins, TaskTimes& times);

/// Gives every task its slots.
void lay_out_slots(const doc::TaskGraph& graph, const RankClasses& classes, TaskTimes& times);

/// The factor on a task's duration on ranks of this class.
double slowness(const doc::Task& task, const RankClass& rank_class);

}  // namespace linerate::sim
