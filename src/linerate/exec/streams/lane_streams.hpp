// The streams that the lanes of a Plan are on a device.
#pragma once

#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/streams/inverse_runs.hpp"
#include "linerate/exec/streams/stream_device.hpp"

namespace linerate::exec {

/// Of one rank: the stream that the program computes in, one each for the lanes of codecs and the
/// host if something runs there, one for each group of ranks that it exchanges something with, and
/// side streams that inverses are computed in while the first computes others. The host's lane
/// holds timers alone; a stream keeps them as a function of the host or a kernel that waits.
class LaneStreams {
 public:
  static constexpr StreamId kComputeStream = 0;

  LaneStreams(const doc::Plan& plan, std::int32_t rank, const InverseStreams& inverses = {});

  /// Of a task of this variant; -1: the rank does not have it.
  StreamId of(std::int32_t variant, std::uint32_t task) const {
    return of_task_[to_index(variant)][task];
  }
  std::size_t count() const { return names_.size(); }
  /// "compute", "network whole", "compute side 1".
  const std::string& name(StreamId stream) const { return names_[to_index(stream)]; }

  /// Those of the compute lane, its own first.
  const std::vector<StreamId>& of_compute_lane() const { return of_compute_lane_; }
  /// Those in which collectives are enqueued.
  const std::vector<StreamId>& of_network() const { return of_network_; }
  bool computes(StreamId stream) const { return stream == kComputeStream || stream >= first_side_; }
  /// InverseRuns::run_of().
  std::int32_t run_of(std::int32_t variant, std::uint32_t task) const {
    return runs_.run_of(variant, task);
  }
  /// Of a variant's tasks on a side stream, the last one that is not after
  /// `task` in the Plan; -1: there is none.
  std::int64_t last_on_side(std::int32_t variant, StreamId stream, std::uint32_t task) const;

 private:
  StreamId open(std::string name);
  void open_lanes(const doc::Plan& plan, std::int32_t rank);
  void open_sides(const doc::Plan& plan);

  InverseRuns runs_;
  std::vector<std::string> names_;
  StreamId first_side_ = 0;
  std::vector<StreamId> of_compute_lane_ = {kComputeStream}, of_network_;
  std::vector<std::vector<StreamId>> of_task_;  // by variant
  /// By variant and stream, from first_side_ on.
  std::vector<std::vector<std::vector<std::uint32_t>>> on_side_;
};

}  // namespace linerate::exec
