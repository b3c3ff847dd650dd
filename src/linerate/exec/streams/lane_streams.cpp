#include "linerate/exec/streams/lane_streams.hpp"

#include <algorithm>
#include <array>

#include "linerate/core/index.hpp"

namespace linerate::exec {

LaneStreams::LaneStreams(const doc::Plan& plan, std::int32_t rank, const InverseStreams& inverses)
    : runs_(plan, rank, inverses) {
  open_lanes(plan, rank);
  open_sides(plan);
}

StreamId LaneStreams::open(std::string name) {
  names_.push_back(std::move(name));
  return static_cast<StreamId>(names_.size() - 1);
}

void LaneStreams::open_lanes(const doc::Plan& plan, std::int32_t rank) {
  std::array<StreamId, doc::kResourceNames.size()> of_lane;
  of_lane.fill(-1);
  of_lane[to_index(doc::Resource::compute)] = open("compute");
  std::vector<StreamId> of_group(plan.groups.size(), -1);
  for (const doc::TaskGraph& graph : plan.variants) {
    std::vector<StreamId>& of_task = of_task_.emplace_back();
    for (const doc::Task& task : graph.tasks) {
      const doc::Group& group = plan.group_of(task);
      of_task.push_back(-1);
      if (!group.holds(rank)) continue;
      const bool sends = task.resource == doc::Resource::network;
      StreamId& stream = sends ? of_group[to_index(task.group)] : of_lane[to_index(task.resource)];
      const std::string lane(name_of(task.resource));
      if (stream < 0) {
        stream = open(sends ? lane + " " + group.name : lane);
        if (sends) of_network_.push_back(stream);
      }
      of_task.back() = stream;
    }
  }
}

void LaneStreams::open_sides(const doc::Plan& plan) {
  first_side_ = static_cast<StreamId>(names_.size());
  for (std::int32_t i = 1; i <= runs_.sides(); ++i)
    of_compute_lane_.push_back(open("compute side " + std::to_string(i)));
  for (std::size_t v = 0; v < plan.variants.size(); ++v) {
    auto& on_side = on_side_.emplace_back(to_index(runs_.sides()));
    for (std::uint32_t i = 0; i < of_task_[v].size(); ++i) {
      const std::int32_t place = runs_.place_of(static_cast<std::int32_t>(v), i);
      if (place == 0) continue;
      of_task_[v][i] = of_compute_lane_[to_index(place)];
      on_side[to_index(place - 1)].push_back(i);
    }
  }
}

std::int64_t LaneStreams::last_on_side(std::int32_t variant, StreamId stream,
                                       std::uint32_t task) const {
  const auto& tasks = on_side_[to_index(variant)][to_index(stream - first_side_)];
  const auto after = std::upper_bound(tasks.begin(), tasks.end(), task);
  return after == tasks.begin() ? -1 : std::int64_t{*(after - 1)};
}

}  // namespace linerate::exec
