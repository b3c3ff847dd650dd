// What a device takes for work that is enqueued, whatever the host takes to enqueue it.
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

/// Of one call.
struct CallTimes {
  double device_s = 0;     // on the device
  double host_s = 0;       // to enqueue it; 0 where that is to do it
  bool was_queued = true;  // before the device could begin it: device_s is the device's own time
};

/// In one stream: a device that is out of work waits for the host, and the time between two marks
/// is then the host's. So other work is enqueued before each kind of work, which keeps the device
/// busy for longer than the host takes to enqueue that kind; each call is enqueued several times in
/// a row, since a mark takes a device a microsecond, too; and not so often that a queue of launches
/// (CUDA's has 1024) would be full before all is in it.
///
/// Thread safety: one thread.
class QueueTimer {
 public:
  /// Marks are set in the clock's stream 0, where `fill` enqueues other work: some 0.1 to 10 ms of
  /// it. Empty: what is enqueued is done at once, as on the CPU.
  QueueTimer(std::shared_ptr<StreamClock> clock, std::function<void()> fill);

  /// Whether what is enqueued is done at once.
  bool is_immediate() const { return !fill_; }

  /// One after the other, round after round: medians over `rounds`, after one or two that do not
  /// count. In the rounds that count, calls may be fewer, the same number of each work that has as
  /// many. Waits for all of it.
  std::vector<CallTimes> time(std::vector<QueuedCalls> work, int rounds);

 private:
  std::vector<CallTimes> run_round(const std::vector<QueuedCalls>& work,
                                   const std::vector<CallTimes>& before);
  void fill_for(double host_s);

  std::shared_ptr<StreamClock> clock_;
  std::function<void()> fill_;
  double fill_s_ = 0;  // of one call, on the device
};

}  // namespace linerate::exec
