// Private: T_1, the step of one rank that computes alone, from the traces of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// A job as one of its ranks would run it alone.
struct AloneSteps {
  /// Its gradients and layers have the times of a rank that computes alone; clocks of its ranks no
  /// longer compare.
  Job job;
  /// Of one update of the parameters. It is the median over the steps of a rank, typical of ranks
  /// (job/typical_step.hpp). If steps repeat every few, it is over whole periods (job/periods.hpp).
  /// Absent: no step is marked.
  std::optional<OneRankTime> time;
  /// Before the backward pass that ends in an exchange. Absent: no such pass is in the trace.
  std::optional<double> forward_s = {};
  std::vector<std::string> notes = {};  // what was left out of T_1, and what is in it
};

/// The steps of a rank alone. A job whose ranks exchange nothing is taken as recorded. From any
/// other job the parts that several ranks and a profiler add are taken off (one_rank_step.cpp). The
/// interval is what their errors, and that of the median, may amount to together.
AloneSteps alone_steps(const Job& job);

/// `alone` is a recording of one rank of `job` without exchange. Throws InputError naming it if it
/// is none.
AloneSteps alone_steps(const Job& job, const Job& alone);

/// Sets Job::one_rank, from `alone` if it is there.
void find_one_rank_time(Job& job, const std::optional<Job>& alone);

}  // namespace linerate::trace
