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

#include "linerate/core/index.hpp"
#include "linerate/exec/step_machine.hpp"

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

/// Numbers arrays. Payloads of several variants get the same number if they have the same content,
/// type, sizes and members. If a variant has several such payloads, its first is the first of the
/// other variant, and so on.
class ArrayNumbers {
 public:
  /// By payload.
  std::vector<std::int32_t> of(const TaskGraph& graph) {
    std::vector<std::int32_t> numbers;
    std::map<Key, std::int64_t> seen;  // in this variant
    for (const Payload& payload : graph.payloads) {
      Key key = key_of(graph, payload, numbers);
      key.push_back(seen[key]++);
      const auto [at, is_new] =
          known_.emplace(std::move(key), static_cast<std::int32_t>(bytes.size()));
      if (is_new) bytes.push_back(payload.bytes());
      numbers.push_back(at->second);
    }
    return numbers;
  }

  std::vector<std::int64_t> bytes;

 private:
  using Key = std::vector<std::int64_t>;

  /// A payload is listed after the one that it stands for.
  static Key key_of(const TaskGraph& graph, const Payload& p,
                    const std::vector<std::int32_t>& numbers) {
    Key key = {std::int64_t(p.content),
               std::int64_t(p.dtype),
               p.elements,
               p.flags,
               p.padded,
               p.of < 0 ? -1 : numbers[to_index(p.of)]};
    key.insert(key.end(), graph.members.begin() + p.begin, graph.members.begin() + p.end);
    return key;
  }

  std::map<Key, std::int32_t> known_;
};

class UsesOfVariant {
 public:
  UsesOfVariant(const doc::Plan& plan, const TaskGraph& graph,
                const std::vector<std::int32_t>& array_of)
      : graph_(graph),
        array_of_(array_of),
        bucket_of_(plan.gradient_names.size(), -1),
        is_copied_(plan.gradient_names.size(), false),
        uses_(graph.tasks.size()) {
    find_gradients();
    for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
      add_own(i);
      for (const std::uint32_t p : graph.predecessors(i)) add_passed_on(p, i);
    }
  }

  const std::vector<std::vector<PayloadUse>>& all() const { return uses_; }

 private:
  void find_gradients() {
    const auto buckets = graph_.buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (std::int32_t m = buckets[b].begin; m < buckets[b].end; ++m)
        bucket_of_[to_index(graph_.members[to_index(m)])] = static_cast<std::int32_t>(b);
    for (const Task& task : graph_.tasks)
      if (task.kind == TaskKind::copy && task.subject == Subject::gradients)
        for (std::int32_t p = task.first; p <= task.last; ++p) is_copied_[to_index(p)] = true;
  }

  void use(std::uint32_t task, std::int32_t payload, bool writes) {
    if (payload < 0) return;
    const std::int32_t array = array_of_[to_index(payload)];
    for (PayloadUse& known : uses_[task])
      if (known.array == array) {
        known.writes = known.writes || writes;
        return;
      }
    uses_[task].push_back({array, writes});
  }

  /// Adds the uses of the payloads and gradients that a task names.
  void add_own(std::uint32_t i) {
    const Task& task = graph_.tasks[i];
    if (has_payloads(task)) {
      const bool moves = is_communication(task.kind);
      for (std::int32_t p = task.first; p <= task.last; ++p)
        use(i, p, moves ? p == task.last : task.kind == TaskKind::decode);
    } else if (task.subject == Subject::gradients) {
      for (std::int32_t p = task.first; p <= task.last; ++p)
        if (task.kind == TaskKind::copy ||
            (task.kind == TaskKind::backward && !is_copied_[to_index(p)]))
          use(i, bucket_of_[to_index(p)], true);
    }
  }

  /// Adds the uses that follow from an edge: the task before writes what the task after takes, or
  /// reads what the task before leaves.
  void add_passed_on(std::uint32_t from, std::uint32_t to) {
    const Task &before = graph_.tasks[from], &after = graph_.tasks[to];
    const auto is_local = [](const Task& t) {
      return !is_communication(t.kind) && t.resource != doc::Resource::host;
    };
    const bool takes = is_communication(after.kind) || after.kind == TaskKind::encode;
    if (takes && is_local(before) && has_payloads(after)) use(from, after.first, true);
    const bool leaves = is_communication(before.kind) || before.kind == TaskKind::decode;
    if (leaves && is_local(after) && has_payloads(before)) use(to, before.last, false);
  }

  const TaskGraph& graph_;
  const std::vector<std::int32_t>& array_of_;
  std::vector<std::int32_t> bucket_of_;  // by position
  std::vector<bool> is_copied_;          // by position: into its bucket
  std::vector<std::vector<PayloadUse>> uses_;
};

}  // namespace

PayloadUses::PayloadUses(const doc::Plan& plan) {
  ArrayNumbers numbers;
  for (const TaskGraph& graph : plan.variants) {
    const std::vector<std::int32_t> array_of = numbers.of(graph);
    uses_.push_back(UsesOfVariant(plan, graph, array_of).all());
  }
  bytes_ = std::move(numbers.bytes);
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
