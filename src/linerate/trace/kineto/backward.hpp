// Private: the backward passes of one rank, from a trace's own records.
#pragma once

#include <vector>

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/gradient_calls.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients, layers and times of the backward passes that the host ran within each step, by start.
/// Times are as in the trace. A step has several passes if it accumulates: passes over the same
/// gradients with forward operators between them. Otherwise all of it is one pass, also if an
/// update parts it into turns (GradientRecord::turn). Steps without gradients, or without their
/// shapes, have no pass.
std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls);

}  // namespace linerate::trace
