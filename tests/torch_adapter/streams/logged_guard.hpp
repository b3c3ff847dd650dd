// Devices of PyTorch's that run nothing: the guard of PrivateUse1 in this program, which writes
// down what c10 asks of it. Two devices.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "linerate/exec/step_machine.hpp"

namespace linerate::support {

/// Streams have c10's numbers: 0 is the default one of its device, new ones follow. Events are
/// numbered as they are made, whatever their device; those that take times apart, as marks.
struct GuardCall {
  enum class Kind : std::uint8_t {
    work,
    record,
    block,
    host_wait,
    other_wait,
    query,
    mark,
    mark_wait
  };
  Kind kind = Kind::work;
  c10::DeviceIndex device = 0;
  c10::StreamId stream = -1;
  std::int64_t event = -1;
  exec::TaskId id = {};
  std::int32_t variant = 0;
};

struct GuardLog {
  std::vector<GuardCall> calls;
  std::int64_t events_made = 0, events_destroyed = 0;  // without times
  std::int64_t marks_made = 0, marks_asked = 0;        // asked: whether they are over
  double device_ms = 0;            // on the device's clock; a mark that is set now is over then
  bool marks_wait = false;         // until the host waits for them
  c10::StreamId streams_made = 0;  // on all devices; the default ones exist
  std::vector<int> priorities;     // of these
};

/// What was asked since the last forget_guard_calls().
GuardLog& guard_log();
/// The current device and streams of this thread are the default ones again, too.
void forget_guard_calls();

c10::Device logged_device(c10::DeviceIndex index);
/// Of this thread.
c10::Device current_device();
c10::Stream current_stream(c10::DeviceIndex index);

}  // namespace linerate::support
