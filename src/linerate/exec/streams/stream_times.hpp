// When a device came to what was enqueued, by the host's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "linerate/exec/recorder.hpp"
#include "linerate/exec/streams/stream_clock.hpp"

namespace linerate::exec {

/// Moments are numbered as they are enqueued, and read in this order when the device has come to
/// them: by the next begin_step(), which does not wait, or by read().
///
/// A device tells how long after another moment one was, and exactly so only if that is not long:
/// CUDA counts milliseconds in f32. So each step begins with an anchor, from which its moments
/// count; anchors count from the one before.
///
/// The clocks are compared by a moment that the host waits for: it lies between the host's times
/// before it was enqueued and after the wait, in practice 20 us apart; the middle is taken, of the
/// closest of three. That is done when this object is made, when a Recorder begins to keep and when
/// its Timeline is asked for, never in a step. Between two comparisons the clocks run at rates that
/// do not change, beyond them at the same one.
/// Thread safety: any thread.
class StreamTimes final : public DeviceMoments {
 public:
  /// Compares the clocks, and waits for that.
  explicit StreamTimes(std::shared_ptr<StreamClock> clock);

  /// In the compute stream.
  std::int64_t now() override;
  void compare_clocks() override;
  std::vector<std::int64_t> read() override;
  /// The same by the device's clock, since the first anchor: for times between moments.
  std::vector<std::int64_t> read_by_device();

  /// The moment at which everything is over that is in this stream by now.
  std::int64_t set_in(StreamId stream);
  /// The latest of some moments; of none the last anchor.
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

}  // namespace linerate::exec
