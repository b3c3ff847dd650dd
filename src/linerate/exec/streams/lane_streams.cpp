#include "linerate/exec/streams/lane_streams.hpp"

#include "linerate/core/index.hpp"

namespace linerate::exec {

LaneStreams::LaneStreams(const doc::Plan& plan, std::int32_t rank)
    : of_group_(plan.groups.size(), -1) {
  of_lane_.fill(-1);
  const auto open = [this](StreamId& stream, std::string name) {
    if (stream >= 0) return;
    stream = static_cast<StreamId>(names_.size());
    names_.push_back(std::move(name));
  };
  open(of_lane_[to_index(doc::Resource::compute)], "compute");
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      const doc::Group& group = plan.group_of(task);
      if (!group.holds(rank)) continue;
      const std::string lane(name_of(task.resource));
      if (task.resource == doc::Resource::network)
        open(of_group_[to_index(task.group)], lane + " " + group.name);
      else
        open(of_lane_[to_index(task.resource)], lane);
    }
}

std::vector<StreamId> LaneStreams::of_network() const {
  std::vector<StreamId> streams = of_group_;
  std::erase(streams, -1);
  return streams;
}

}  // namespace linerate::exec
