// What each rank did for itself in each of its steps.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// By number of the step.
using StepTimes = std::map<std::int64_t, OwnTime>;

/// Work and idle time between a lane's borders.
StepTimes step_times(const Lane& lane);

/// By lane. Idle time is that of the rank's host if its pauses are recorded: a device that is still
/// at work hides some of a pause, and one whose host is only just ahead idles a little after each
/// kernel, whoever waits for whom. `host`: this is so for every rank.
struct OwnSteps {
  std::vector<StepTimes> lanes;
  bool host = false;
};
OwnSteps own_steps(const Job& job, const Program& program);

/// Every rank against the one in the middle of the others, in the steps that all have.
std::vector<Late> late_steps(const OwnSteps& own);

}  // namespace linerate::trace
