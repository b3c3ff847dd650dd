// The streams that the lanes of a Plan are on a device.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/streams/stream_device.hpp"

namespace linerate::exec {

/// The streams of one rank. The program computes in one. The lanes of codecs and the host have one
/// each if a task runs there. Each group of ranks that this rank exchanges payloads with has one.
///
/// For example a plan for four ranks has a group for the two ranks of each host. Then rank 0 has
/// three streams: "compute", "network whole" and one for its host's group.
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
  std::size_t count() const { return names_.size(); }
  /// "compute", "network whole".
  const std::string& name(StreamId stream) const { return names_[to_index(stream)]; }

 private:
  std::array<StreamId, doc::kResourceNames.size()> of_lane_{};
  std::vector<StreamId> of_group_;
  std::vector<std::string> names_;
};

}  // namespace linerate::exec
