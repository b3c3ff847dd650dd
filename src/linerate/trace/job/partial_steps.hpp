// Private: which steps a rank's recording has in part only.
#pragma once

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Sets StepSpan::partial on the first and last steps of each rank's recording if they lack
/// communications. A step lacks some if the rank's other steps have more and another rank has the
/// full number in the same step.
///
/// Example. Rank 0 has 4 communications in each of steps 3 to 6, rank 1 has 4, 4, 4 and 1. Rank 1's
/// recording ended within step 6, so that step is partial there. If rank 0 had 1 in step 6 as well,
/// the step would be complete. The job sent less in it, as it does when gradients add up over
/// steps.
void find_partial_steps(Job& job);

}  // namespace linerate::trace
