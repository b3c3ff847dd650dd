#include "linerate/torch_streams/torch_stream_device.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_streams {
namespace {

/// The CPU and meta tensors have a guard too, one without streams.
c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  if (device.is_cpu() || device.is_meta() || !c10::impl::hasDeviceGuardImpl(device.type()))
    throw DeviceError(
        fmt::format("device {}: expected one with streams and events, found that this PyTorch has "
                    "none of this type; train on the CPU, or install a PyTorch for the device",
                    device.str()));
  return c10::impl::VirtualGuardImpl(device.type());
}

c10::Device with_index(c10::Device device, const c10::impl::VirtualGuardImpl& guard) {
  const int count = guard.deviceCount();
  if (std::max<int>(device.index(), 0) >= count)
    throw DeviceError(fmt::format(
        "device {}: expected an index below the number of devices, found {} of them that this "
        "process may use; name one of these",
        device.str(), count));
  return device.has_index() ? device : guard.getDevice();
}

/// Of the calling thread.
c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

TorchStreamDevice::TorchStreamDevice(c10::Device device, std::size_t streams, TaskWork work)
    : work_(std::move(work)) {
  const c10::impl::VirtualGuardImpl guard = guard_of(device);
  const c10::Device here = with_index(device, guard);
  streams_.push_back(guard.getStream(here));
  while (streams_.size() < streams) streams_.push_back(guard.getNewStream(here));
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

void TorchStreamDevice::compute_after_caller() {
  order(current_stream_of(streams_[0].device()), streams_[0]);
}

void TorchStreamDevice::caller_after_compute() {
  order(streams_[0], current_stream_of(streams_[0].device()));
}

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

}  // namespace linerate::torch_streams
