// What the dependencies of a job's own traces say: what each remedy gains at most, who is late and
// where, and what does not repeat.
// Thread safety: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "linerate/trace/explain/cause.hpp"
#include "linerate/trace/explain/hook_cost.hpp"
#include "linerate/trace/explain/remedy.hpp"

namespace linerate::trace {

/// What a replay of the job without one cause or another says.
struct CriticalPath {
  /// What each remedy gains, replayed, and what it could gain at most; absent if ranks are missing:
  /// then nothing can be replayed. A remedy whose cause is not found gains what the replay says.
  RemedyShares gains, ceilings;
  std::vector<SharedGain> shared;  // what several remedies gain together
  /// Share of the step: instant data and no late ranks, together.
  std::optional<double> communication_share;
  std::map<std::int64_t, StepGain> by_step;  // empty: unknown
  std::vector<Cause> causes;                 // who and what holds the job up
  std::vector<Irregularity> irregular;       // steps that do not repeat
  std::optional<HookCost> hook;              // of a communication hook; absent: none was seen
  std::vector<double> lateness_s;  // by rank as in the job: median over steps; empty: unknown

  /// Steps that only some of the ranks have: files of unequal length.
  std::set<std::int64_t> of_some_ranks;
  /// Cut steps that take longer than the others, on account of that.
  std::set<std::int64_t> cut_longer;
  bool no_common_step = false;  // there are steps, and not one that all ranks have

  /// Steps that do not repeat, that were cut, or that not all ranks have.
  std::set<std::int64_t> left_out() const;
};

}  // namespace linerate::trace
