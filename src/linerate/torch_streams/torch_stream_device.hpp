// The streams and events of a device, as PyTorch has them, for a StreamRunner.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/exec/streams/stream_device.hpp"
#include "linerate/torch_streams/tensor_device.hpp"

namespace linerate::torch_streams {

/// Any accelerator whose guard is registered with c10 (CUDA, XPU, PrivateUse1 ...). Its events take
/// no times; EventClock has events that do. Only host_wait() synchronises, and for one event.
///
/// Thread safety: one call at a time, from any thread. A current stream is that of the thread that
/// calls, and autograd has a thread of its own for each device.
class TorchStreamDevice final : public TensorDevice {
 public:
  /// The compute stream is the one that is current now; `streams` - 1 others are new. A device
  /// without an index is the current one of its type. Streams in `first` have high priority: as
  /// soon as a part of the device is free, it goes to their work. Throws DeviceError if the device
  /// has no streams, or this PyTorch does not know it.
  TorchStreamDevice(c10::Device device, std::size_t streams, TaskWork work,
                    const std::vector<exec::StreamId>& first = {});

  c10::Stream stream(exec::StreamId stream) const { return streams_.at(to_index(stream)); }

  /// Makes the stream current and its device as well, calls the work, and makes those current again
  /// that were; also if the work throws.
  void enqueue(exec::StreamId stream, const exec::StreamWork& work) override;
  void record(exec::EventId event, exec::StreamId stream) override;
  void wait(exec::StreamId stream, exec::EventId event) override;
  void host_wait(exec::EventId event) override;
  void compute_after_caller() override;
  void caller_after_compute() override;
  void compute(const std::function<void()>& work) override;
  std::vector<c10::Stream> streams() const override { return streams_; }

 private:
  void order(const c10::Stream& first, const c10::Stream& then);
  /// The event of this id. Throws InternalError for one that was never recorded, which c10 would
  /// take for one that is over.
  const c10::Event& recorded(exec::EventId event) const;

  std::vector<c10::Stream> streams_;
  std::optional<c10::Stream> caller_;  // another stream that called caller_after_compute() last
  std::vector<c10::Event> events_;
  std::optional<c10::Event> border_;  // between the program's stream and the compute stream
  TaskWork work_;
};

}  // namespace linerate::torch_streams
