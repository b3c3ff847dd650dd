// Private: T_1, the step of one rank that computes alone, from the traces of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct OneRankStep {
  /// A step less its exposed communication: the median over the steps of a rank, the lower median
  /// over ranks; of all steps that one exchange takes. Absent: no step is marked.
  std::optional<double> step_s;
  /// Before the backward pass that ends in an exchange. Absent: no such pass is in the trace.
  std::optional<double> forward_s;
  std::vector<std::string> notes;  // what was left out of T_1, and pauses that are in it
};

OneRankStep one_rank_step(const Job& job);

}  // namespace linerate::trace
