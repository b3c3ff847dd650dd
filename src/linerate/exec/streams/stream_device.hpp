// The interface of a device that runs a Plan: queues that it works off by itself, and events
// between them.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// A queue of a device, by its number: what is enqueued in it runs in this order.
using StreamId = std::int32_t;
/// A point in a stream that others may wait for, by its number.
using EventId = std::int32_t;

/// A task of an open step, as a device runs it.
struct StreamWork {
  TaskId id;
  const doc::TaskGraph& graph;
  const doc::Task& task;
};

/// Modelled on CUDA's streams and events, and on c10::Stream and c10::Event. Only host_wait()
/// waits. A stream's wait is for what was recorded last when the wait was enqueued, so an event may
/// be recorded again at once.
class StreamDevice {
 public:
  virtual ~StreamDevice() = default;
  /// Puts the work of a task at the end of a stream. The work of a collective ends there when the
  /// collective has ended.
  virtual void enqueue(StreamId stream, const StreamWork& work) = 0;
  /// The event is over when everything is over that is in the stream by now.
  virtual void record(EventId event, StreamId stream) = 0;
  /// Work that is enqueued in the stream from now on begins when the event is over.
  virtual void wait(StreamId stream, EventId event) = 0;
  /// Returns when the event is over.
  virtual void host_wait(EventId event) = 0;
};

}  // namespace linerate::exec
