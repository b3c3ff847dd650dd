// A trace becomes a Workload: what one rank computes in a step, for the planner and the simulator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Gradients in ready order with their times, layers by autograd node, from the last whole step;
/// without records of gradients (record_shapes was off) every gradient exchange of the step becomes
/// one gradient, and `notes` says so. Times are those of a rank that computes alone
/// (one_rank_step.hpp), recorded if `alone` is there. Throws InputError when the trace holds
/// neither.
doc::Workload workload_of(Job job, const std::string& name, std::vector<std::string>& notes,
                          const std::optional<Job>& alone = std::nullopt);

}  // namespace linerate::trace
