// Private: which steps a rank's recording has in part only.
#pragma once

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Sets StepSpan::partial at the begin and end of each rank's recording: of steps with fewer
/// communications than others of the rank have, where another rank has as many as ever. Where all
/// have fewer, as when gradients add up over steps, it is no sign of that.
void find_partial_steps(Job& job);

}  // namespace linerate::trace
