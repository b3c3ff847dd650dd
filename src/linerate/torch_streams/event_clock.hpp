// The events of a device that take times, as PyTorch has them.
#pragma once

#include <c10/core/Event.h>

#include <vector>

#include "linerate/torch_streams/tensor_clock.hpp"

namespace linerate::torch_streams {

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

}  // namespace linerate::torch_streams
