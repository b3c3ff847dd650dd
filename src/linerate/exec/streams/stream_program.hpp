// The interface of a device that runs a Plan: queues that it works off by itself, and events
// between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
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
/// be recorded again at once. Where work is over as soon as it is enqueued, events mean nothing.
class StreamDevice {
 public:
  virtual ~StreamDevice() = default;
  /// Puts the work of a task at the end of a stream. The work of a collective ends there when the
  /// collective has ended.
  virtual void enqueue(StreamId stream, const StreamWork& work) = 0;
  /// The event is over when everything is over that is in the stream by now.
  virtual void record(EventId, StreamId) {}
  /// Work that is enqueued in the stream from now on begins when the event is over.
  virtual void wait(StreamId, EventId) {}
  /// Returns when the event is over.
  virtual void host_wait(EventId) {}
};

// The streams that the lanes of a Plan are on a device.

/// The streams of one rank. The program computes in one. The lanes of codecs and the host have one
/// each if a task runs there. Each group of ranks that this rank exchanges payloads with has one.
///
/// For example a plan for four ranks has a group for the two ranks of each host. Then rank 0 has
/// three streams: one to compute, one for the whole group and one for its host's group.
///
/// The host's lane holds timers alone; a stream keeps them as a function of the host or a kernel
/// that waits.
class LaneStreams {
 public:
  static constexpr StreamId kComputeStream = 0;

  LaneStreams(const doc::Plan& plan, std::int32_t rank);

  /// The stream of a task that the rank has.
  StreamId of(const doc::Task& task) const {
    return task.resource == doc::Resource::network ? of_group_[to_index(task.group)]
                                                   : of_lane_[to_index(task.resource)];
  }
  /// The streams in which collectives are enqueued.
  std::vector<StreamId> of_network() const;
  std::size_t count() const { return count_; }

 private:
  std::array<StreamId, doc::kResourceNames.size()> of_lane_{};
  std::vector<StreamId> of_group_;
  std::size_t count_ = 1;
};

// The interface of a device's clock, with which enqueued work is timed. StreamDevice is the other
// interface.

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

// Where the host cannot go on without values that are on the device.

enum class HostRead : std::uint8_t {
  nothing,
  counts,  // how much each rank sends, before the collective is enqueued
  result   // what the task made or read, before anything else is enqueued
};

/// A value that the host has to read for a task before it can go on.
///
/// Two of our operations read results. LibTorch's eigendecomposition looks at its solver's status,
/// and no function of ATen's avoids that. sidco fits its thresholds on the host. Flags of a step
/// are not among these reads, because no task of the step depends on them.
HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

// Which arrays the tasks of a Plan read and write.

struct PayloadUse {
  std::int32_t array = 0;
  bool writes = false;  // else it only reads
};

/// Finds the arrays that each task reads and writes. A Plan names payloads and not who touches
/// them, so this follows from the Plan's edges:
/// - A collective writes the payload that it moves. An all-to-all reads one payload and writes
///   another.
/// - A task before a collective, or before an encode, writes the payload that the collective or
///   encode takes.
/// - A task after a collective, or after a decode, reads the payload that the collective or decode
///   leaves.
/// - A gradient is written into its bucket by its copy task, or by its backward task if it has no
///   copy.
/// - A decode writes its bucket. Other tasks read the payloads that they name.
///
/// For example `pack` → `all-reduce` → `unpack` over bucket 0: the first writes the bucket, the
/// second writes it, and the third reads it. So the next step's `pack` has to wait for this step's
/// `unpack`, although the Plan has no edge between the two.
///
/// Payloads of several variants that have the same content are one array, which is used from step
/// to step.
class PayloadUses {
 public:
  explicit PayloadUses(const doc::Plan& plan);

  std::span<const PayloadUse> of(std::int32_t variant, std::uint32_t task) const {
    return uses_[to_index(variant)][task];
  }
  /// How many there are, and their bytes, padding included.
  std::size_t count() const { return bytes_.size(); }
  std::int64_t bytes(std::int32_t array) const { return bytes_[to_index(array)]; }

 private:
  std::vector<std::vector<std::vector<PayloadUse>>> uses_;  // [variants][tasks]
  std::vector<std::int64_t> bytes_;
};

// A Plan for the streams of one rank: what is known of it before the first step.

/// Whether something is so of each task, by variant.
using TaskMarks = std::vector<std::vector<bool>>;

/// An edge from a step into one of this variant.
struct EdgeFromBefore {
  std::uint32_t to = 0, from = 0;  // tasks of the step and of the one before
  std::int32_t variant = 0;        // of the one before
};

struct StreamProgram {
  std::shared_ptr<const doc::Plan> plan;
  std::int32_t rank = 0;
  LaneStreams lanes;
  PayloadUses payloads;
  std::vector<std::vector<EdgeFromBefore>> from_before;  // by variant, in the order of `to`
  /// The tasks whose end gets an event of its own. A stream or the host waits for exactly that end,
  /// if tasks are enqueued in the Plan's order.
  TaskMarks has_event;
};

}  // namespace linerate::exec
