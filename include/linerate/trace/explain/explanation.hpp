// What a job's traces say, for whoever prints it: `explain` and the pages of `report` alike.
#pragma once

#include <string>
#include <vector>

#include "linerate/trace/explain/breakdown.hpp"
#include "linerate/trace/explain/verdict.hpp"

namespace linerate::trace {

/// Numbers, and what follows from them.
struct Explanation {
  Breakdown breakdown;  // the numbers
  Verdict verdict;      // what bounds the step
};

/// break_down() and judge() in one. Ceilings of the network need T_1: find_one_rank_time() of the
/// job comes first.
[[nodiscard]] Explanation explain(const Job& job, const Thresholds& thresholds = {});

/// "inconclusive, leaning to host-bound (confidence 0.40)".
[[nodiscard]] std::string finding_text(const Verdict& verdict);
/// A sentence for each cause, in the order of the path's.
[[nodiscard]] std::vector<std::string> cause_texts(const CriticalPath& path);
/// A sentence on what a communication hook costs.
[[nodiscard]] std::string hook_text(const HookCost& hook);
/// By remedy: its name, what it gains, and at most; "n/a" where unknown.
[[nodiscard]] std::vector<std::vector<std::string>> gain_rows(const Verdict& verdict);

}  // namespace linerate::trace
