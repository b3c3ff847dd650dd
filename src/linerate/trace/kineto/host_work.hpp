// Private: a job whose device is the CPU: what of the host's records is computation.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {

/// Is there nothing of an accelerator in it: no back end, launch or annotation of one?
bool runs_on_cpu(const KinetoTrace& trace);

struct HostComputation {
  std::vector<Span> spans;
  std::vector<std::uint64_t> names;  // RankActivity::compute_names
};

/// Operators. Not the annotations around them, nor operators that communicate inside, whose own
/// operators count; nor what the data loader does.
HostComputation host_computation(const KinetoTrace& trace);

}  // namespace linerate::trace
