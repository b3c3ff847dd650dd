// The time that a device takes for enqueued work, however long the host takes to enqueue it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "linerate/exec/streams/stream_clock.hpp"

namespace linerate::exec {

/// Calls that enqueue the same, by number; nothing waits for what was enqueued.
struct QueuedCalls {
  int count = 1;
  std::function<void(int call)> enqueue;
};

/// The times of one call, in seconds.
struct CallTimes {
  double device_s = 0;     // on the device
  double host_s = 0;       // to enqueue it; 0 where that is to do it
  bool was_queued = true;  // before the device could begin it: device_s is the device's own time
};

/// Measures in one stream. The time between two marks is the device's only if the device is never
/// out of work between them. Else the device waits for the host, and the marks measure the host.
///
/// Three measures keep the device busy. Other work (`fill`) is enqueued before each kind of work;
/// it runs for longer than the host takes to enqueue that kind. Each call is enqueued several times
/// in a row, since a mark takes a device a microsecond, too. The calls are few enough that a queue
/// of launches (CUDA's has 1024) does not fill up. A full queue would make the host wait.
///
/// An example: the host takes 200 us to enqueue 20 calls, and the device takes 5 us for each.
/// Without other work the marks would be 200 us apart, 10 us a call. With 300 us of other work
/// before them, all 20 calls are queued at 200 us. The device runs them from 300 to 400 us, and the
/// marks give 5 us a call.
///
/// Thread safety: one thread.
class QueueTimer {
 public:
  /// Marks are set in the clock's stream 0, where `fill` enqueues other work: some 0.1 to 10 ms of
  /// it. Empty: what is enqueued is done at once, as on the CPU.
  QueueTimer(std::shared_ptr<StreamClock> clock, std::function<void()> fill);

  /// Whether what is enqueued is done at once.
  bool is_immediate() const { return !fill_; }

  /// Times each kind of work, one after the other, round after round: medians over `rounds`, after
  /// one or two rounds that do not count. In the rounds that count, `count` may be cut down, to the
  /// same number for each work that had as many. Waits for all of it.
  std::vector<CallTimes> time(std::vector<QueuedCalls> work, int rounds);

 private:
  std::vector<CallTimes> run_round(const std::vector<QueuedCalls>& work,
                                   const std::vector<CallTimes>& before);
  void fill_for(double host_s);

  std::shared_ptr<StreamClock> clock_;
  std::function<void()> fill_;
  double fill_s_ = 0;  // seconds of one call of `fill_` on the device
};

}  // namespace linerate::exec
