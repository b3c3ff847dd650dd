// What a hook on the exchange of gradients costs and saves. It sends fewer bytes. In return it
// encodes and decodes, and often waits for each bucket while backward could have gone on.
#pragma once

#include <cstdint>

namespace linerate::trace {

/// Of one step, mean over steps and ranks.
struct HookCost {
  std::int64_t dense_bytes = 0, sent_bytes = 0;  // without and with the hook
  double work_s = 0;          // computation of the exchange on the device: casts, coding, scaling
  double host_s = 0;          // the host in it
  double lost_overlap_s = 0;  // what the step gains, replayed, if backward waits for no exchange
  double transfer_s = 0, dense_transfer_s = 0;  // dense: at the best rate that was recorded
  double step_s = 0, without_s = 0;             // the step, and replayed without the hook
  /// The step, replayed with a hook whose host takes no time by itself: a profiler draws that out.
  double with_quick_host_s = 0;
};

}  // namespace linerate::trace
