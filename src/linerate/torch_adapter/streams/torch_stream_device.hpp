// The device that tensors lie on, for steps that a program of PyTorch's drives: its streams and its
// clock.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::torch_adapter {

/// A device's streams. The program computes in one of them, which mostly is the stream that is
/// current when it calls. If the program calls from another stream for once, the two streams wait
/// for each other as said here. This class itself is the CPU's: its work is done when it is
/// enqueued, so there are no streams.
class TensorDevice : public exec::StreamDevice {
 public:
  /// Does a task's work in the current stream and without waiting for it: operators of ATen,
  /// collectives of a ProcessGroup.
  using TaskWork = std::function<void(const exec::StreamWork&)>;

  explicit TensorDevice(TaskWork work) : work_(std::move(work)) {}

  void enqueue(exec::StreamId, const exec::StreamWork& work) override { work_(work); }
  /// Work that is enqueued in the compute stream from now on begins after all that is in the
  /// calling thread's current stream.
  virtual void compute_after_caller() {}
  /// Work that is enqueued in the calling thread's current stream from now on begins after all that
  /// is in the compute stream.
  virtual void caller_after_compute() {}
  /// Does the work in the compute stream, after all that is in the calling thread's current stream.
  /// The next work in that stream, and in the one that called caller_after_compute() last, begins
  /// after it. So the stream that trains finds updates that another stream has asked for.
  virtual void compute(const std::function<void()>& work) { work(); }
  /// By exec::StreamId; none on the CPU.
  virtual std::vector<c10::Stream> streams() const { return {}; }

 protected:
  TaskWork work_;
};

// The streams and events of a device, as PyTorch has them, for a StreamRunner.

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
};

// The device that a name of PyTorch's stands for, on one of several ranks.

/// How many devices of its type this process may use. The type is an accelerator, with streams and
/// events. Throws DeviceError if this PyTorch has none of the type, or no device of this index.
int devices_like(c10::Device device);

/// The device of a name such as "cuda:1", "xpu" or "cpu", as torch.device() takes them. A name
/// without an index stands for the devices of its type in turn. With two of them, the ranks 0, 1, 2
/// of a host (`turn`) get devices 0, 1, 0. Throws UsageError for a text that names no device,
/// DeviceError for a device that is not here.
c10::Device named_device(const std::string& name, int turn);

/// Whether the calling thread's current stream there is capturing a graph: work is then recorded
/// for a replay and does not run. False before LibTorch 2.13, which cannot tell.
bool is_capturing(c10::Device device);

/// "cuda", without an index.
std::string type_name(c10::Device device);

// Chooses the streams that tensors of a device are used in.

/// The streams of a device. An accelerator has a TorchStreamDevice, which gets these arguments.
std::unique_ptr<TensorDevice> make_tensor_device(c10::Device device, std::size_t streams,
                                                 TensorDevice::TaskWork work,
                                                 const std::vector<exec::StreamId>& first = {});

// Times of what is enqueued where tensors lie.

/// Outlives the streams' TensorDevice: marks that were set in them can be read when it is gone.
class TensorClock : public exec::StreamClock {
 public:
  /// From now on marks are set in these: those of a TensorDevice, in its order.
  virtual void follow(std::vector<c10::Stream> streams) = 0;
  std::int64_t host_ns() override { return steady_ns(); }
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
/// The same, for marks in the calling thread's current stream.
std::unique_ptr<TensorClock> clock_of_current_stream(c10::Device device);

}  // namespace linerate::torch_adapter
