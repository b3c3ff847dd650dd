// A trace becomes a Workload: what one rank computes in a step, for the planner and the simulator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// The Workload has gradients in ready order with their times, and layers by autograd node. Without
/// records of gradients (record_shapes was off) every gradient exchange of the step becomes one
/// gradient, and `notes` says so. Times are those of a rank that computes alone
/// (one_rank_step.hpp); they are recorded ones if `alone` is there. Throws InputError if the trace
/// has neither gradients nor exchanges, or if the model is split over ranks.
doc::Workload workload_of(Job job, const std::string& name, std::vector<std::string>& notes,
                          const std::optional<Job>& alone = std::nullopt);

}  // namespace linerate::trace
