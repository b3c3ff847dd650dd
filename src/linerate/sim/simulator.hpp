// When each task ran; both ways of simulating write it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::sim {

/// Task i of a rank of class c ran in [start[s], end[s]), in seconds, with s = slot(i, c). A task
/// has a slot for every class of its group. A collective has one for each class too: its `start` is
/// the class's own submission, and its `end` that of the whole part.
///
/// An example with two classes. Both have task 0, with the slots 0 and 1. Class 1 alone has task 1,
/// with slot 2. Both have task 2, with the slots 3 and 4. Then `first` is {0, 2, 3, 5}, and slot(2,
/// 1) is 4.
struct TaskTimes {
  std::vector<double> start, end;    // may be longer than needed: memory is used again
  std::vector<std::uint32_t> first;  // [tasks + 1] first slot; empty: all ranks alike, slot = task
  std::vector<std::int32_t> group;   // [tasks] as the Plan says; unused if `first` is empty
  Membership members;                // of the groups; unused if `first` is empty

  /// kNoSlot if the class does not have the task.
  std::uint32_t slot(std::uint32_t task, std::int32_t rank_class) const {
    if (first.empty()) return task;
    const std::uint32_t position = members.position(group[task], rank_class);
    return position == kNoSlot ? kNoSlot : first[task] + position;
  }

  /// action(slot of `before`, slot of `after`) for every class that has both tasks.
  template <typename Action>
  void for_shared(std::uint32_t before, std::uint32_t after, Action action) const {
    const std::uint32_t b = first[before], a = first[after];
    if (group[before] == group[after]) {
      for (std::uint32_t k = 0; k < first[after + 1] - a; ++k) action(b + k, a + k);
      return;
    }
    // The smaller group is looked up in the larger: tasks of single ranks may number thousands.
    const auto of_before = members.classes_in(group[before]);
    const auto of_after = members.classes_in(group[after]);
    const std::uint32_t common =
        static_cast<std::uint32_t>(std::min(of_before.size(), of_after.size()));
    const bool before_is_smaller = of_before.size() == common;
    for (std::uint32_t k = 0; k < common; ++k) {
      const std::uint32_t other = before_is_smaller ? members.position(group[after], of_before[k])
                                                    : members.position(group[before], of_after[k]);
      if (other == kNoSlot) continue;
      before_is_smaller ? action(b + k, a + other) : action(b + other, a + k);
    }
  }
};

// Several steps one after the other: their tasks are numbered through, and edges into the next step
// lead to a task like any other.

/// Borrows the Plan.
struct Unrolled {
  const doc::Plan* plan = nullptr;
  std::vector<std::uint32_t> begins;   // [steps] first task of each step
  std::vector<std::int32_t> variants;  // [steps] index into Plan::variants
  doc::TaskGraph joined;               // several steps as one graph, tasks and edges alone: join()

  const doc::TaskGraph& variant(std::size_t step) const {
    return plan->variants[to_index(variants[step])];
  }
  /// A single step is its variant itself; several must have been joined.
  const doc::TaskGraph& graph() const { return begins.size() == 1 ? variant(0) : joined; }
  /// One past the last task of a step.
  std::uint32_t end(std::size_t step) const {
    return begins[step] + static_cast<std::uint32_t>(variant(step).tasks.size());
  }
};

/// The first step of a Plan that belongs to its cycle.
std::int64_t first_of_cycle(const doc::Plan& plan);
/// True when a step of the cycle reaches into the next one.
bool reaches_next_step(const doc::Plan& plan);

/// Lays out so many steps of the Plan's schedule from `first_step` on. 0 begins as a real run does,
/// with its warm-up; first_of_cycle() begins with the cycle. There is no barrier between steps: the
/// next step waits only for its resources and for the edges that name its variant. Copies no task.
void lay_out_steps(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out);
/// Copies tasks and edges of several steps into one graph.
void join(Unrolled& steps);
/// lay_out_steps() and join().
void unroll(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out);

/// The edges out of the step `before` into a step of this variant that comes after it, sorted by
/// the task that they lead to. `edges` is overwritten.
void find_edges_into(std::int32_t variant, const doc::TaskGraph& before,
                     std::vector<doc::NextStepEdge>& edges);

// The cycle of a Plan once it repeats, task by task: predicted Timelines are read from it.

/// The cycle as it repeats: steps first_step .. first_step + the plan's cycle - 1 of `unrolled`.
/// The steps before it let overlapping steps settle. `times` are seconds since the begin of the
/// run, and `origin_s` is time 0 of the cycle: the earliest begin over the classes. Of `classes`
/// only the members are used. Valid as long as the Plan.
struct SteadyCycle {
  Unrolled unrolled;
  TaskTimes times;
  RankClasses classes;
  std::size_t first_step = 0;
  double origin_s = 0;
  double end_s = 0;  // of the last task

  std::size_t steps() const { return unrolled.begins.size() - first_step; }
  /// Rounded to the nanosecond.
  std::int64_t since_origin_ns(double at_s) const { return doc::nanoseconds(at_s - origin_s); }
  /// When a class runs a task; absent if it does not have it, or it takes no time.
  std::optional<Span> span(std::uint32_t task, std::int32_t rank_class) const {
    const std::uint32_t slot = times.slot(task, rank_class);
    if (slot == kNoSlot || times.end[slot] <= times.start[slot]) return std::nullopt;
    return Span{since_origin_ns(times.start[slot]), since_origin_ns(times.end[slot])};
  }
  /// Step `index` of the cycle on a class of ranks. It begins at the end of the class's last
  /// computation in the step before, or at time 0 in the first step of all. It ends at the end of
  /// its last computation in this step. Empty for a class that computes nothing.
  Span step(std::size_t index, std::int32_t rank_class) const;
  /// Where the first step of the cycle begins on a class, by the clock of `times`.
  double begin_s(std::int32_t rank_class) const;
};

/// The cycle, with the graph of all its steps joined.
SteadyCycle steady_cycle(const doc::Plan& plan, const cost::CostModel& model);
/// The same, into memory that was used before. Steps are joined only if simulating them needs it.
void find_steady_cycle(const doc::Plan& plan, Prices& prices, SteadyCycle& cycle);

/// The ranks that a picture of the job shows: all of them up to 16, else one of each class.
std::vector<std::int32_t> shown_ranks(const doc::Plan& plan, const RankClasses& classes);

// Simulates one Plan after the other.

/// Simulates plans, keeping its memory between calls.
class Simulator {
 public:
  SimResult simulate(const doc::Plan& plan, const cost::CostModel& model);
  /// Finds exposed communication too; steps that do not overlap are run once for both.
  SimResult simulate_exposure(const doc::Plan& plan, const cost::CostModel& model);

  /// SimResult::step_s alone, of the steady cycle: the inner loop of sweeps.
  double step_s(const doc::Plan& plan, const cost::CostModel& model);

 private:
  SimResult finish(const doc::Plan& plan, Prices& prices, SimResult result);

  TaskTimes times_;
  Unrolled unrolled_;
  SteadyCycle cycle_;
};

/// SimResult::communication_s in two, each with its interval if its prices have one.
struct NetworkTime {
  doc::Bounded waited_for_s;  // other_collectives: computation stands still, whatever is planned
  doc::Bounded overlaps_s;    // the rest, which computation may hide
};
[[nodiscard]] NetworkTime network_time(const doc::Plan& plan, const cost::CostModel& model);

// The two ways of simulating, and which of them steps need.

/// Whether computation and communication slow each other down.
bool contends(const Prices& prices);
/// Whether ranks are alike and in every task's group.
bool are_alike(const Unrolled& steps, const doc::Cluster& cluster);

/// Simulates steps that were laid out. Ranks that are alike need one pass over the tasks, unless
/// the Cluster says that computation and communication contend; everything else takes events
/// (fluid.cpp), for which the steps are joined. Returns the end of the last task, in seconds.
double run_steps(Unrolled& steps, Prices& prices, TaskTimes& times);

/// One pass over the tasks of steps, which need not be joined. For ranks that are alike, without
/// contention. A task's start follows from its predecessors, its resource and a collective's delay,
/// which are all earlier in the Plan.
double sweep(const Unrolled& steps, Prices& prices, TaskTimes& times);

// Discrete events. Each class of ranks works through its tasks at its own speed. Computation and
// communication of a rank slow each other down by the Cluster's factors while both are active, and
// so do computation and coding.

/// Simulates a graph. Returns the end of the last task, in seconds; `times` receives the start and
/// end of every slot.
///
/// - Computation means the resources compute and codec. Host tasks and delays slow nothing.
/// - A collective transfers once all ranks of its part have come to it. It slows computation from
///   then on; a rank that waits for the others is not slowed.
/// - A collective runs at the pace of its slowest rank: it is slowed while any rank of its part
///   computes.
/// - A collective is held up for message_delay_s, as far as a rank of its part computes.
/// - A broadcast waits for its root alone (BroadcastTime).
/// - Computation and coding of one rank slow each other down, too.
/// - While a rank waits out the Cluster's delay before a collective, it does not transfer.
///
/// `step_begins`: the first task of each step, where delays of ranks are due.
double run_fluid(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
                 std::span<const std::uint32_t> step_begins, const doc::Contention& contention,
                 TaskTimes& times);

// How much of a Plan's predicted step is exposed communication (doc/scaling_factor.hpp).

/// Seconds a steady step: the mean over the plan's cycle and over the ranks that
/// predicted_timeline() shows. So a comparison with that Timeline starts from the same figure.
double exposed_communication_s(const doc::Plan& plan, const cost::CostModel& model);
/// Of the Plan's steady cycle.
double exposed_communication_s(const doc::Plan& plan, const SteadyCycle& cycle);

// The predicted step of a Plan with its whole interval: what every verb says of a strategy.

/// Whether this Plan's steady step has coding that takes time: a cast that is free is none.
bool has_coding(const doc::Plan& plan);

/// A step, and why its interval is what it is.
struct PredictedStep {
  /// Its interval holds what is not known of collectives, of T_1, of coding and of processors that
  /// carry messages, which are independent: squares add up. Its high end is no shorter than
  /// crowded_s.
  doc::Bounded step_s;
  /// With coding as much slower as ranks share cores; absent: they do not, or nothing is coded.
  std::optional<double> crowded_s;
};

/// Gives the simulator's `result` of this Plan its whole interval. It comes from the Workload's
/// T_1, the model's Cluster and the spread of coding (doc::CodecCost::spread, a factor of at least
/// 1). `simulator` simulates the Plan again with other costs of coding.
PredictedStep predicted_step(const SimResult& result, const doc::Plan& plan,
                             const doc::Workload& workload, const cost::CostModel& model,
                             Simulator& simulator, double coding_spread = 1);

}  // namespace linerate::sim
