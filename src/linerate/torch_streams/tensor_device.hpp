// The device that tensors lie on, for steps that a program of PyTorch's drives.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <vector>

#include "linerate/exec/streams/stream_device.hpp"

namespace linerate::torch_streams {

/// A device's streams. The program computes in one of them, which mostly is the stream that is
/// current when it calls. If the program calls from another stream for once, the two streams wait
/// for each other as said here.
class TensorDevice : public exec::StreamDevice {
 public:
  /// Does a task's work in the current stream and without waiting for it: operators of ATen,
  /// collectives of a ProcessGroup.
  using TaskWork = std::function<void(const exec::StreamWork&)>;

  /// Work that is enqueued in the compute stream from now on begins after all that is in the
  /// calling thread's current stream.
  virtual void compute_after_caller() = 0;
  /// Work that is enqueued in the calling thread's current stream from now on begins after all that
  /// is in the compute stream.
  virtual void caller_after_compute() = 0;
  /// Does the work in the compute stream, after all that is in the calling thread's current stream.
  /// The next work in that stream, and in the one that called caller_after_compute() last, begins
  /// after it. So the stream that trains finds updates that another stream has asked for.
  virtual void compute(const std::function<void()>& work) = 0;
  /// By exec::StreamId; none on the CPU.
  virtual std::vector<c10::Stream> streams() const = 0;
};

}  // namespace linerate::torch_streams
