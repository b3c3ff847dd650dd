// When a device came to what was enqueued, by the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "linerate/exec/recorder.hpp"
#include "linerate/exec/streams/stream_program.hpp"

namespace linerate::exec {

/// Moments are numbered as they are enqueued. They are read in this order once the device has come
/// to them: by the next begin_step(), which does not wait, or by read().
///
/// A device tells how long one moment was after another, and is exact only for short times. CUDA
/// counts milliseconds in f32: 60 s are exact to 4 us, 0.2 s to 15 ns. So each step begins with an
/// anchor. The step's moments count from the anchor, and each anchor counts from the one before.
///
/// The clocks of device and host are compared by a moment that the host waits for. That moment lies
/// between the host's time before it was enqueued and the host's time after the wait, in practice
/// 20 us apart. The middle is taken, of the closest of three tries. That is done when this object
/// is made, when a Recorder begins to keep, and when its Timeline is asked for, never in a step.
///
/// Between two comparisons the device's clock has one rate; before the first and after the last its
/// rate is the host's. For example the device's 0 ms was the host's 100 ms, and the device's 1000
/// ms was the host's 1110 ms. Then a moment at 500 ms of the device was at 605 ms of the host.
///
/// Thread safety: any thread.
class StreamTimes final : public DeviceMoments {
 public:
  /// Compares the clocks, and waits for that.
  explicit StreamTimes(std::shared_ptr<StreamClock> clock);

  /// In the compute stream.
  std::int64_t now() override;
  void compare_clocks() override;
  std::vector<std::int64_t> read() override;
  /// As read(), but by the device's clock, since the first anchor: exact for the time between two
  /// moments.
  std::vector<std::int64_t> read_by_device();

  /// The moment at which everything is over that is in this stream by now.
  std::int64_t set_in(StreamId stream);
  /// The number of a moment that is the latest of these; the last anchor if there are none.
  std::int64_t latest_of(std::span<const std::int64_t> moments);
  /// Reads what is over, and enqueues an anchor in the compute stream.
  std::int64_t begin_step();

 private:
  struct Moment {
    MarkId mark = -1;  // -1: the latest of others
    bool is_anchor = false;
    std::vector<std::int64_t> others;
  };
  /// The same moment by both clocks.
  struct SameMoment {
    double device_ns = 0, host_ns = 0;
  };

  std::int64_t enqueue(StreamId stream, bool is_anchor);
  void read_what_is_over();
  void wait_and_read();
  void take_next();
  double on_device(const Moment& moment) const;
  std::int64_t next_number() const;
  void compare();
  std::int64_t on_host(double device_ns) const;

  std::shared_ptr<StreamClock> clock_;
  std::mutex mutex_;               // of everything below
  std::deque<Moment> waiting_;     // not read yet, by number
  std::vector<double> device_ns_;  // of those that were, since the first anchor
  std::int64_t last_anchor_ = 0;   // of those that are enqueued
  MarkId anchor_ = -1;             // the mark of the last one that was read
  double anchor_ns_ = 0;           // and its time
  MarkId marks_ = 0;               // made so far
  std::vector<MarkId> free_;
  std::vector<SameMoment> comparisons_;  // ascending
};

// The time that a device takes for enqueued work, however long the host takes to enqueue it.

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
