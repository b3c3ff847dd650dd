// A device's queue for work whose time is to be measured. Private to torch_adapter.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/exec/streams/queue_timer.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"

namespace linerate::torch_adapter {

/// The calling thread's current stream, in which operators enqueue, with a timer. If the device is
/// the CPU, its tensors are computed on as a device's are while this object lives (CpuAsDevice).
class TimedQueue {
 public:
  /// Throws DeviceError if the device does not work.
  explicit TimedQueue(c10::Device device);
  /// `timer`: of that device's queue.
  TimedQueue(c10::Device device, exec::QueueTimer timer);

  c10::Device device() const { return device_; }
  /// "cuda"
  std::string type() const;
  /// How often work should be enqueued in a row: several times, unless it is done at once.
  int calls_in_a_row() const { return timer_.is_immediate() ? 1 : 8; }
  /// Times the work on all ranks at once. Returns medians of rounds, means over ranks. Work counts
  /// as queued if it was on every rank. Collective.
  std::vector<exec::CallTimes> time(comm::Communicator& communicator,
                                    const std::vector<exec::QueuedCalls>& work);

 private:
  std::optional<CpuAsDevice> as_device_;
  c10::Device device_;
  exec::QueueTimer timer_;
};

}  // namespace linerate::torch_adapter
