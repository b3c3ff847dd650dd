// What each rank did for itself in each of its steps, and how late it comes by that.
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

/// Own times by lane and step. If the pauses of every rank's host are recorded (`host`), they are
/// the idle time, because a device's idle time misleads twice. A device that is still at work hides
/// the begin of a pause. A device whose host is only just ahead idles a little after each kernel,
/// whoever waits for whom.
struct OwnSteps {
  std::vector<StepTimes> lanes;
  bool host = false;
};
OwnSteps own_steps(const Job& job, const Program& program);

/// Every rank against the one in the middle of the others, in the steps that all have.
std::vector<Late> late_steps(const OwnSteps& own);

}  // namespace linerate::trace
