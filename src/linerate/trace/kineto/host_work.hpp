// Private: a job whose device is the CPU: what of the host's records is computation.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Is there nothing of an accelerator in it: no back end, launch or annotation of one?
bool runs_on_cpu(const KinetoTrace& trace);

/// Operators. Not the annotations around them, nor operators that communicate inside, whose own
/// operators count; nor what the data loader does.
std::vector<Span> host_computation(const KinetoTrace& trace);

}  // namespace linerate::trace
