// Private: the backward passes of one rank, from a trace's own records.
#pragma once

#include <vector>

#include "linerate/trace/job/job.hpp"
#include "linerate/trace/kineto/gradient_calls.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Gradients, layers and their times of the backward passes that the host ran within each step
/// (times as in the trace), by start. A step has several if it accumulates: passes over the same
/// gradients with forward operators between them; else all that ran in it is one pass, also if an
/// update parts it into turns (GradientRecord::turn). Steps without gradients, or without their
/// shapes, have none.
std::vector<BackwardPass> backward_passes(const KinetoTrace& trace, const GradientCalls& calls);

}  // namespace linerate::trace
