// Times of what is enqueued where tensors lie.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::torch_streams {

/// Outlives the streams' TensorDevice: marks that were set in them can be read when it is gone.
class TensorClock : public exec::StreamClock {
 public:
  /// From now on marks are set in these: those of a TensorDevice, in its order.
  virtual void follow(std::vector<c10::Stream> streams) = 0;
};

// The events of a device that take times, as PyTorch has them.

/// The clock of any accelerator whose guard is registered with c10. Only wait_for() synchronises,
/// and for one event. Thread safety: one call at a time, from any thread.
class EventClock final : public TensorClock {
 public:
  explicit EventClock(c10::DeviceType device) : device_(device) {}

  void follow(std::vector<c10::Stream> streams) override;
  void set(exec::MarkId mark, exec::StreamId stream) override;
  bool is_over(exec::MarkId mark) override;
  void wait_for(exec::MarkId mark) override;
  double ns_between(exec::MarkId first, exec::MarkId then) override;
  std::int64_t host_ns() override;

 private:
  c10::DeviceType device_;
  std::vector<c10::Stream> streams_;
  std::vector<c10::Event> events_;
};

// Chooses what times tensors of a device.

/// The clock of a device. On the CPU a mark is over as soon as it is set, and its time is the
/// host's. An accelerator has events that take times. The device is one that make_tensor_device()
/// takes.
std::unique_ptr<TensorClock> make_tensor_clock(c10::Device device);

}  // namespace linerate::torch_streams
