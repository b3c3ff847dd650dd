// Finds which arrays each task of a Plan reads and writes. StreamRunner needs this, because streams
// run side by side. A task must wait until earlier steps are through with its arrays, also if their
// variant was another one.
//
// Example of one bucket: task 0 copies gradients into array 0, task 1 all-reduces it, and task 2
// reads it into the .grads. In the next step task 0 must wait for task 2 of this one, because both
// use array 0 and task 0 writes it. The Plan's edges within a step do not say that.
#include "linerate/exec/streams/stream_program.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace linerate::exec {
namespace {

using doc::Payload;
using doc::Subject;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

bool has_payloads(const Task& task) {
  return task.subject == Subject::payloads && task.last >= task.first;
}

/// The numbers of payloads' arrays, by variant and payload; `bytes` gets what each array has.
/// Payloads of several variants get the same number if they have the same content, type, sizes and
/// members. If a variant has several such payloads, its first is the first of the other variant,
/// and so on.
std::vector<std::vector<std::int32_t>> numbered_arrays(const doc::Plan& plan,
                                                       std::vector<std::int64_t>& bytes) {
  using Key = std::vector<std::int64_t>;
  std::map<Key, std::int32_t> known;
  std::vector<std::vector<std::int32_t>> numbers;
  for (const TaskGraph& graph : plan.variants) {
    std::vector<std::int32_t>& here = numbers.emplace_back();
    std::map<Key, std::int64_t> seen;  // in this variant
    for (const Payload& p : graph.payloads) {
      // A payload is listed after the one that it stands for.
      const std::int64_t of = p.of < 0 ? -1 : here[to_index(p.of)];
      Key key = {std::int64_t(p.content), std::int64_t(p.dtype), p.elements, p.flags, p.padded, of};
      key.insert(key.end(), graph.members.begin() + p.begin, graph.members.begin() + p.end);
      key.push_back(seen[key]++);
      const auto [at, is_new] =
          known.emplace(std::move(key), static_cast<std::int32_t>(bytes.size()));
      if (is_new) bytes.push_back(p.bytes());
      here.push_back(at->second);
    }
  }
  return numbers;
}

/// The uses of a variant's tasks. `array_of`: by payload.
std::vector<std::vector<PayloadUse>> uses_of(const doc::Plan& plan, const TaskGraph& graph,
                                             const std::vector<std::int32_t>& array_of) {
  // By position: a gradient's bucket, and whether a task copies it there.
  std::vector<std::int32_t> bucket_of(plan.gradient_names.size(), -1);
  std::vector<bool> is_copied(bucket_of.size(), false);
  const auto buckets = graph.buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (std::int32_t m = buckets[b].begin; m < buckets[b].end; ++m)
      bucket_of[to_index(graph.members[to_index(m)])] = static_cast<std::int32_t>(b);
  for (const Task& task : graph.tasks)
    if (task.kind == TaskKind::copy && task.subject == Subject::gradients)
      for (std::int32_t p = task.first; p <= task.last; ++p) is_copied[to_index(p)] = true;

  std::vector<std::vector<PayloadUse>> uses(graph.tasks.size());
  const auto use = [&](std::uint32_t task, std::int32_t payload, bool writes) {
    if (payload < 0) return;
    const std::int32_t array = array_of[to_index(payload)];
    const auto known = std::ranges::find(uses[task], array, &PayloadUse::array);
    if (known == uses[task].end())
      uses[task].push_back({array, writes});
    else
      known->writes = known->writes || writes;
  };
  const auto is_local = [](const Task& t) {
    return !is_communication(t.kind) && t.resource != doc::Resource::host;
  };
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    // The payloads and gradients that the task names.
    const Task& task = graph.tasks[i];
    const bool moves = is_communication(task.kind);
    if (has_payloads(task)) {
      for (std::int32_t p = task.first; p <= task.last; ++p)
        use(i, p, moves ? p == task.last : task.kind == TaskKind::decode);
    } else if (task.subject == Subject::gradients) {
      for (std::int32_t p = task.first; p <= task.last; ++p)
        if (task.kind == TaskKind::copy ||
            (task.kind == TaskKind::backward && !is_copied[to_index(p)]))
          use(i, bucket_of[to_index(p)], true);
    }
    // What follows from an edge: the task before writes what this one takes, or this one reads what
    // the task before leaves.
    for (const std::uint32_t p : graph.predecessors(i)) {
      const Task& before = graph.tasks[p];
      const bool takes = moves || task.kind == TaskKind::encode;
      if (takes && is_local(before) && has_payloads(task)) use(p, task.first, true);
      const bool leaves = is_communication(before.kind) || before.kind == TaskKind::decode;
      if (leaves && is_local(task) && has_payloads(before)) use(i, before.last, false);
    }
  }
  return uses;
}

}  // namespace

PayloadUses::PayloadUses(const doc::Plan& plan) {
  const auto array_of = numbered_arrays(plan, bytes_);
  for (std::size_t v = 0; v < plan.variants.size(); ++v)
    uses_.push_back(uses_of(plan, plan.variants[v], array_of[v]));
}

LaneStreams::LaneStreams(const doc::Plan& plan, std::int32_t rank)
    : of_group_(plan.groups.size(), -1) {
  of_lane_.fill(-1);
  of_lane_[to_index(doc::Resource::compute)] = kComputeStream;
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      if (!plan.group_of(task).holds(rank)) continue;
      const bool moves = task.resource == doc::Resource::network;
      StreamId& stream =
          moves ? of_group_[to_index(task.group)] : of_lane_[to_index(task.resource)];
      if (stream < 0) stream = static_cast<StreamId>(count_++);
    }
}

std::vector<StreamId> LaneStreams::of_network() const {
  std::vector<StreamId> streams = of_group_;
  std::erase(streams, -1);
  return streams;
}

HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  // sidco's threshold follows from moments that the host fits, stage by stage.
  const bool is_fitted = task.kind == TaskKind::encode && plan.operation_name(task) == "sidco";
  if (doc::is_eigendecomposition(plan, task) || is_fitted) return HostRead::result;
  const bool reads_counts = task.kind == doc::TaskKind::all_gather_v && task.last >= task.first &&
                            counts_of(graph, task.first) >= 0;
  return reads_counts ? HostRead::counts : HostRead::nothing;
}

}  // namespace linerate::exec
