// Collects what happened on one rank into a doc::Timeline, on a time axis all ranks share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/timeline.hpp"

namespace linerate::exec {

/// Zero of the Timeline on this rank's steady clock, and the same moment since the epoch.
struct TimeOrigin {
  std::int64_t steady_ns = 0;  // on std::chrono::steady_clock
  std::int64_t epoch_ns = 0;   // since 1970, the same moment
};

/// One zero for all ranks, rank 0's now. Ranks of one host (same boot id) share its steady clock
/// and are exact. Others translate through the system clock, so their offset is as good as the
/// hosts' clock synchronisation. Collective.
[[nodiscard]] TimeOrigin agree_origin(comm::Communicator& communicator);

/// Moments of a device that works off what a host enqueues: when they are is known once it has come
/// to them. Thread safety: any thread.
class DeviceMoments {
 public:
  virtual ~DeviceMoments() = default;
  /// The moment at which everything is over that the program has enqueued by now, by its number:
  /// 0 is the first. Does not wait.
  virtual std::int64_t now() = 0;
  /// Compares the device's clock with the host's. Waits for the device.
  virtual void compare_clocks() = 0;
  /// When all moments so far were (steady clock, ns), by number. Waits for the device.
  virtual std::vector<std::int64_t> read() = 0;
};

/// Collects events, counters and steps of this rank. Times are given as std::chrono::steady_clock
/// has them, in nanoseconds, or as now() has them, and moved to the origin.
/// Thread safety: any thread; keep() before others use it.
class Recorder {
 public:
  /// `mode` of the Timeline: "trained" or "rehearsed".
  Recorder(const comm::Communicator& communicator, TimeOrigin origin, std::string mode);

  /// Index into Timeline::names; the same text gives the same index.
  std::int32_t name_id(const std::string& name);
  /// Index into Timeline::parameter_sets.
  std::int32_t set_id(const std::vector<std::string>& parameters);

  /// This moment of what the program computes, to be added as a time. On the CPU steady_clock's
  /// now. Once a DataParallel with a device_group records here, it is a negative number that stands
  /// for a moment of the device. At that moment the device has done all that is enqueued by now;
  /// timeline() has its time.
  std::int64_t now();
  /// now() is a moment of this device from here on. Those of one before are read, which waits.
  /// `type`: what the Timeline calls the device ("cuda"); empty: it is the processor.
  void follow(std::shared_ptr<DeviceMoments> device, std::string type = {});
  /// The answer that now() would give for the moment with this number of the device.
  std::int64_t time_of(std::int64_t moment) const;

  /// Rank and step are filled in here: the current step, or the one in which the task began.
  void add(const doc::Event& event) { add(event, step()); }
  /// The same for a step that is named.
  void add(doc::Event event, std::int32_t step);
  /// A sampled counter, as counters of the network card.
  void add(doc::Counter counter);
  /// Events added from now on belong to this step.
  void begin_step(std::int32_t index);
  /// Step `index` lasted so long, and ran this variant of its Plan.
  void add_step(std::int32_t index, std::int64_t start_ns, std::int64_t end_ns,
                const std::string& variant);
  /// The step that events are added to.
  std::int32_t step() const;

  /// Whether what is added is kept; true at first. Without an end a long run would fill the memory.
  /// Between steps: clocks are compared when this begins, and that waits for a device.
  void keep(bool yes);
  /// Whether what is added now is kept.
  bool keeps() const { return kept_; }
  /// Forgets all that was added so far, except names.
  void forget();

  /// Everything so far. Waits for a device that has not come to all of it.
  [[nodiscard]] doc::Timeline timeline() const;

 private:
  std::atomic<bool> kept_{true};
  mutable std::mutex mutex_;
  TimeOrigin origin_;
  std::int32_t rank_;
  std::int32_t step_ = 0;
  doc::Timeline timeline_;  // its events and steps have their times as they were given
  std::shared_ptr<DeviceMoments> device_;
  std::vector<std::int64_t> read_;  // times of devices before that one
  std::map<std::string, std::int32_t> names_;
  std::map<std::string, std::int32_t> parameters_;
  std::map<std::vector<std::int32_t>, std::int32_t> sets_;
};

/// One Timeline of several ranks' (renumbering names and parameter sets); the first gives what is
/// common to all.
[[nodiscard]] doc::Timeline merge(const std::vector<doc::Timeline>& timelines);
/// merge() over all ranks; the whole on rank 0, an empty Timeline elsewhere. Collective.
[[nodiscard]] doc::Timeline gather_timeline(comm::Communicator& communicator,
                                            const doc::Timeline& mine);

}  // namespace linerate::exec
