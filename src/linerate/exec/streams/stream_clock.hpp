// The interface of a device's clock, with which enqueued work is timed. StreamDevice is the other
// interface.
#pragma once

#include <cstdint>

#include "linerate/exec/streams/stream_device.hpp"

namespace linerate::exec {

/// A point in a stream whose time can be asked for, by its number.
using MarkId = std::int32_t;

/// Modelled on CUDA's events with times, and c10::Event with EventFlag::BACKEND_DEFAULT. Only
/// wait_for() waits.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  /// The mark is over when everything is over that is in the stream by now. A mark that is over may
  /// be set again.
  virtual void set(MarkId mark, StreamId stream) = 0;
  virtual bool is_over(MarkId mark) = 0;
  /// Returns when the mark is over.
  virtual void wait_for(MarkId mark) = 0;
  /// The time from `first` to `then` by the device's clock, in ns. Both are over.
  virtual double ns_between(MarkId first, MarkId then) = 0;
  /// The host's clock (steady clock, ns).
  virtual std::int64_t host_ns() = 0;
};

}  // namespace linerate::exec
