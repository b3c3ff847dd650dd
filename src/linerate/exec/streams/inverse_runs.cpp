#include "linerate/exec/streams/inverse_runs.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::exec {
namespace {

bool is_average(const doc::Plan& plan, const doc::Task& task) {
  return task.origin == doc::Origin::executed && plan.operation_name(task) == "average-factors";
}

/// Of a run's inverses in one stream; without seconds their number counts.
using Load = std::pair<double, int>;

}  // namespace

bool is_inverse(const doc::Task& task) {
  return task.kind == doc::TaskKind::inverse && task.origin == doc::Origin::executed &&
         task.resource == doc::Resource::compute;
}

/// Packed, a factor is half of its matrix; a test measures eight matrices while it is inverted.
std::int64_t inverse_workspace(const doc::Task& inverse) {
  constexpr std::int64_t kWorkspacePerByte = 16;
  return kWorkspacePerByte * inverse.bytes;
}

InverseRuns::InverseRuns(const doc::Plan& plan, std::int32_t rank, const InverseStreams& inverses) {
  LINERATE_CHECK(inverses.at_once > 0, "not even one inverse at once");
  workspace_.resize(to_index(inverses.at_once));
  for (const doc::TaskGraph& graph : plan.variants) {
    std::vector<Member>& members = variants_.emplace_back(graph.tasks.size());
    const doc::VariantIndex index(plan, graph, rank);
    const std::vector<std::uint32_t>& lane = index.lanes[to_index(doc::Resource::compute)];
    const auto belongs = [&](std::uint32_t i) {
      return is_inverse(graph.tasks[i]) || is_average(plan, graph.tasks[i]);
    };
    for (auto end = lane.begin(); end != lane.end();) {
      const auto begin = std::find_if(end, lane.end(), belongs);
      end = std::find_if_not(begin, lane.end(), belongs);
      spread(plan, graph, {begin, end}, inverses.workspace_bytes, members);
    }
  }
}

/// Averages alone are no run.
void InverseRuns::spread(const doc::Plan& plan, const doc::TaskGraph& graph,
                         std::span<const std::uint32_t> run, std::int64_t workspace_bytes,
                         std::vector<Member>& members) {
  // One that is inverted with the next computes nothing, and stays in the compute stream.
  const auto inverts = [&](std::uint32_t i) {
    return is_inverse(graph.tasks[i]) && !doc::is_inverted_with_next(plan, graph.tasks[i]);
  };
  auto inverses_left = std::count_if(run.begin(), run.end(), inverts);
  if (inverses_left == 0) return;
  auto others_left = std::ssize(run) - inverses_left;
  std::vector<Load> loads(workspace_.size());
  for (const std::uint32_t i : run) {
    members[i].run = runs_;
    if (!inverts(i)) {
      --others_left;
      continue;
    }
    const std::int64_t bytes = inverse_workspace(graph.tasks[i]);
    std::size_t least = 0;
    for (std::size_t s = 1; s < loads.size(); ++s) {
      const bool is_less =
          least == 0 && others_left > 0 ? loads[s] <= loads[0] : loads[s] < loads[least];
      if (is_less && room_with(s, bytes) <= workspace_bytes) least = s;
    }
    loads[least].first += graph.tasks[i].seconds;
    ++loads[least].second;
    if (least > 0) workspace_[least] = std::max(workspace_[least], bytes);
    members[i].place = static_cast<std::int32_t>(least);
    sides_ = std::max(sides_, members[i].place);
  }
  ++runs_;
}

/// What side streams take if one of them computes an inverse of so many bytes.
std::int64_t InverseRuns::room_with(std::size_t stream, std::int64_t bytes) const {
  std::int64_t sum = std::max<std::int64_t>(bytes - workspace_[stream], 0);
  for (const std::int64_t of_stream : workspace_) sum += of_stream;
  return sum;
}

}  // namespace linerate::exec
