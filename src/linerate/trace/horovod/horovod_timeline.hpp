// Private: Horovod timelines.
#pragma once

#include <string>

#include "linerate/trace/input/input.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Horovod timeline (rank 0 writes it for all): negotiation ticks give the arrival skew, activities
/// the transfer. A fused batch writes the same activity for every member tensor: nearly equal
/// intervals of different tensors are one collective, bytes summed.
Job read_horovod(PaddedText text, const std::string& name);

}  // namespace linerate::trace
