// What a hook on the exchange of gradients costs and saves: it sends fewer bytes, and encodes,
// decodes and often waits for each bucket where backward would have gone on.
#pragma once

#include <cstdint>
#include <optional>

#include "linerate/trace/explain/ceilings.hpp"
#include "linerate/trace/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Of one step, mean over steps and ranks.
struct HookCost {
  std::int64_t dense_bytes = 0, sent_bytes = 0;
  double work_s = 0;          // computation of the exchange on the device: casts, coding, scaling
  double host_s = 0;          // the host in it
  double lost_overlap_s = 0;  // what the step gains, replayed, if backward waits for no exchange
  double transfer_s = 0, dense_transfer_s = 0;  // dense: at the best rate that was recorded
  double step_s = 0, without_s = 0;             // the step, and replayed without the hook
  /// The step, replayed with a hook whose host takes no time by itself: a profiler draws that out.
  double with_quick_host_s = 0;
};

/// Nothing if gradients are exchanged whole, or if their sizes, their exchanges or the calls around
/// them are unknown.
std::optional<HookCost> hook_cost(const Job& job, const Program& program, const Gains& gains);

}  // namespace linerate::trace
