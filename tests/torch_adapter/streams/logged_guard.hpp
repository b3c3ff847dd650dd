// Devices of PyTorch's that run nothing: the guard of PrivateUse1 in this program, which writes
// down what c10 asks of it. Two devices.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::support {

struct GuardLog {
  /// "1:2 does task 3", "1:2 records 0", "1:2 waits 0" (device:stream), "host waits 0"; of events
  /// that take times "1:2 sets a mark", "host waits for a mark". Streams have c10's numbers: 0 is
  /// the default one of its device, new ones follow. Events are numbered as they are made, whatever
  /// their device; marks apart.
  std::vector<std::string> calls;
  std::int64_t events_made = 0, events_destroyed = 0;  // without times
  std::int64_t marks_made = 0, marks_asked = 0;        // asked: whether they are over
  double device_ms = 0;            // on the device's clock; a mark that is set now is over then
  bool marks_wait = false;         // until the host waits for them
  c10::StreamId streams_made = 0;  // on all devices; the default ones exist
};

/// What was asked since the last forget_guard_calls().
GuardLog& guard_log();
/// Its calls since the last time.
std::vector<std::string> taken_calls();
/// The current device and streams of this thread are the default ones again, too.
void forget_guard_calls();

/// A task's work is done in this stream.
void note_task(const c10::Stream& where, std::uint32_t task);
/// Work that only notes down the device and the stream that are current when it is called.
torch_adapter::TorchStreamDevice::TaskWork logged_work();

c10::Device logged_device(c10::DeviceIndex index);
/// Of this thread.
c10::Device current_device();
c10::Stream current_stream(c10::DeviceIndex index);

}  // namespace linerate::support
