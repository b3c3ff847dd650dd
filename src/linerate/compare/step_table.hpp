// A Timeline as a table: one row a step, one column a task, seconds in the cells. What compare
// joins and summarises.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "linerate/doc/timeline.hpp"

namespace linerate::compare {

/// What identifies a task, whatever the bucket layout: its kind, its subject, and which of the
/// step's tasks with both it is. An exchange in two rounds has the phases 0 and 1.
struct TaskKey {
  doc::TaskKind kind = doc::TaskKind::host;
  std::string set;   // sorted parameter names, one a line; empty if the Timeline has none
  std::string name;  // used if there is no set
  int phase = 0;

  auto operator<=>(const TaskKey&) const = default;
};

/// Cells of one quantity by step, NaN if a step lacks it.
using Column = std::vector<double>;

/// The variant of a step, and of the one before it, whose communication may reach into this one.
struct StepKind {
  std::string variant, before;
  auto operator<=>(const StepKind&) const = default;
};

struct StepTable {
  std::vector<StepKind> steps;  // those kept
  Column step_s;                // mean over ranks
  Column exposed_s;             // communication: doc/scaling_factor.hpp; mean over ranks
  Column communication_s;  // union of the network's tasks in the step's window; mean over ranks
  // Computation: mean over ranks; communication: the least over ranks.
  std::map<TaskKey, Column> tasks;
  std::map<doc::TaskKind, Column> kinds;  // sum of the tasks of a kind
  int dropped = 0;                        // steps left out as warm-up
};

/// Tabulates the steps after the warm-up. For communication the least over ranks counts. A rank
/// that comes early waits in the call for the last one, and that wait is no transfer. Steps of
/// variants that never come again after the first `warm_up` steps (DDP's first step with its own
/// buckets) are dropped with them. Throws InputError when no step remains.
StepTable tabulate(const doc::Timeline& timeline, int warm_up);

/// Warm-up steps dropped by default: a tenth, at least two; none from fewer than five steps.
int default_warm_up(const doc::Timeline& timeline);

}  // namespace linerate::compare
