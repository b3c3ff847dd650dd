// A StreamDevice over PyTorch's streams and events, for every type of device that has them. Stream
// 0 is the stream that was current when this object was made. The others come from PyTorch's pool.
// Nothing here waits on the host but host_wait().
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
namespace {

/// As PyTorch counts, a lower number has priority, and every device has this one.
constexpr int kHighPriority = -1;

/// The stream that is current on the calling thread.
c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

TorchStreamDevice::TorchStreamDevice(c10::Device device, std::size_t streams, TaskWork work,
                                     const std::vector<exec::StreamId>& first)
    : TensorDevice(std::move(work)) {
  devices_like(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Device here = device.has_index() ? device : guard.getDevice();
  streams_.push_back(guard.getStream(here));
  while (streams_.size() < streams) {
    const auto next = static_cast<exec::StreamId>(streams_.size());
    const bool is_first = std::ranges::find(first, next) != first.end();
    streams_.push_back(guard.getNewStream(here, is_first ? kHighPriority : 0));
  }
}

void TorchStreamDevice::enqueue(exec::StreamId stream, const exec::StreamWork& work) {
  const c10::StreamGuard current(streams_.at(to_index(stream)));
  work_(work);
}

void TorchStreamDevice::record(exec::EventId event, exec::StreamId stream) {
  const c10::Stream& in = streams_.at(to_index(stream));
  while (events_.size() <= to_index(event)) events_.emplace_back(in.device_type());
  events_[to_index(event)].record(in);
}

void TorchStreamDevice::wait(exec::StreamId stream, exec::EventId event) {
  recorded(event).block(streams_.at(to_index(stream)));
}

void TorchStreamDevice::host_wait(exec::EventId event) { recorded(event).synchronize(); }

/// Mostly the program computes in streams_[0] and these three cost nothing. A program with a stream
/// of its own (a side stream, a capture) has that stream and streams_[0] wait for each other.
void TorchStreamDevice::compute_after_caller() {
  order(current_stream_of(streams_[0].device()), streams_[0]);
}

void TorchStreamDevice::caller_after_compute() {
  const c10::Stream caller = current_stream_of(streams_[0].device());
  if (caller == streams_[0]) return;
  caller_ = caller;
  order(streams_[0], caller);
}

/// For example a program trains in stream A and asks in stream B for updates that are not made yet.
/// The work then comes after B's, and both B and A (`caller_`) wait for it. Without A's wait, the
/// next forward pass might read weights that are half updated.
void TorchStreamDevice::compute(const std::function<void()>& work) {
  const c10::Stream caller = current_stream_of(streams_[0].device());
  order(caller, streams_[0]);
  {
    const c10::StreamGuard current(streams_[0]);
    work();
  }
  order(streams_[0], caller);
  if (caller_ && *caller_ != caller) order(streams_[0], *caller_);
}

/// Work that is enqueued in `then` from now on begins after all work in `first`. One event serves
/// all calls, because a wait is for the recording before it.
void TorchStreamDevice::order(const c10::Stream& first, const c10::Stream& then) {
  if (first == then) return;
  if (!border_) border_.emplace(first.device_type());
  border_->record(first);
  border_->block(then);
}

const c10::Event& TorchStreamDevice::recorded(exec::EventId event) const {
  LINERATE_CHECK(
      to_index(event) < events_.size() && events_[to_index(event)].was_marked_for_recording(),
      fmt::format("event {} is waited for before it is recorded", event));
  return events_[to_index(event)];
}

// Devices by name, as PyTorch writes them. A device without an index is chosen by the rank's turn
// on its host. Example: three ranks on a host with two devices take cuda:0, cuda:1 and cuda:0.

namespace {

c10::Device parsed_device(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {  // it lists 20 types that have no streams
    throw UsageError(fmt::format(
        "device \"{}\": expected cpu, or an accelerator as PyTorch names it, found neither; name "
        "one such as cuda, cuda:1 or xpu",
        name));
  }
}

template <typename Stream>
bool captures(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); }) return stream.is_capturing();
  return false;
}

}  // namespace

int devices_like(c10::Device device) {
  // The CPU and meta tensors have a guard too, one without streams.
  if (device.is_cpu() || device.is_meta() || !c10::impl::hasDeviceGuardImpl(device.type()))
    throw DeviceError(fmt::format(
        "device {}: expected one with streams and events, found that this PyTorch has none of "
        "this type; take cpu, or build with a PyTorch for the device",
        device.str()));
  const int count = c10::impl::VirtualGuardImpl(device.type()).deviceCount();
  if (count == 0)
    throw DeviceError(fmt::format(
        "device {}: expected a device of this type, found none that this process may use; check "
        "its driver and what hides devices (CUDA_VISIBLE_DEVICES), or take cpu",
        device.str()));
  if (device.index() >= count)
    throw DeviceError(fmt::format(
        "device {}: expected an index below the number of devices, found {} of them that this "
        "process may use; name one of these",
        device.str(), count));
  return count;
}

c10::Device named_device(const std::string& name, int turn) {
  const c10::Device device = parsed_device(name);
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  const int count = devices_like(device);
  if (device.has_index()) return device;
  return c10::Device(device.type(), static_cast<c10::DeviceIndex>(turn % count));
}

bool is_capturing(c10::Device device) {
  return !device.is_cpu() && captures(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::string type_name(c10::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

std::unique_ptr<TensorDevice> make_tensor_device(c10::Device device, std::size_t streams,
                                                 TensorDevice::TaskWork work,
                                                 const std::vector<exec::StreamId>& first) {
  if (device.is_cpu()) return std::make_unique<TensorDevice>(std::move(work));
  return std::make_unique<TorchStreamDevice>(device, streams, std::move(work), first);
}

void EventClock::follow(std::vector<c10::Stream> streams) { streams_ = std::move(streams); }

/// Marks are events of BACKEND_DEFAULT, which take times. TorchStreamDevice has others that take
/// none and cost less.
void EventClock::set(exec::MarkId mark, exec::StreamId stream) {
  while (events_.size() <= to_index(mark))
    events_.emplace_back(device_, c10::EventFlag::BACKEND_DEFAULT);
  events_[to_index(mark)].record(streams_.at(to_index(stream)));
}

bool EventClock::is_over(exec::MarkId mark) { return events_.at(to_index(mark)).query(); }

void EventClock::wait_for(exec::MarkId mark) { events_.at(to_index(mark)).synchronize(); }

double EventClock::ns_between(exec::MarkId first, exec::MarkId then) {
  constexpr double kNsPerMs = 1e6;
  return kNsPerMs * events_.at(to_index(first)).elapsedTime(events_.at(to_index(then)));
}

namespace {

class ImmediateClock final : public TensorClock {
 public:
  void follow(std::vector<c10::Stream>) override {}
  void set(exec::MarkId mark, exec::StreamId) override {
    if (set_ns_.size() <= to_index(mark)) set_ns_.resize(to_index(mark) + 1);
    set_ns_[to_index(mark)] = steady_ns();
  }
  bool is_over(exec::MarkId) override { return true; }
  void wait_for(exec::MarkId) override {}
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    return static_cast<double>(set_ns_[to_index(then)] - set_ns_[to_index(first)]);
  }

 private:
  std::vector<std::int64_t> set_ns_;
};

}  // namespace

std::unique_ptr<TensorClock> make_tensor_clock(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<ImmediateClock>();
  return std::make_unique<EventClock>(device.type());
}

std::unique_ptr<TensorClock> clock_of_current_stream(c10::Device device) {
  auto clock = make_tensor_clock(device);
  clock->follow(make_tensor_device(device, 1, {})->streams());
  return clock;
}

}  // namespace linerate::torch_adapter
