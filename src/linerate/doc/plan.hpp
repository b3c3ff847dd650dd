// Plan: the task graph of a training step, interpreted by sim, rehearse and train alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/doc/task.hpp"

namespace linerate::doc {

inline constexpr std::int32_t kEveryRank = -1;

/// One task. `first..last` (inclusive) is its subject: layers for forward, gradients (positions in
/// the Workload's ready order) for backward, buckets for encode, exchange, decode and update. An
/// empty subject has last < first.
struct Task {
  TaskKind kind = TaskKind::host;
  Origin origin = Origin::executed;
  Resource resource = Resource::host;
  DType wire = DType::f32;  // element type on the wire (exchange tasks)
  std::int32_t rank =
      kEveryRank;  // kEveryRank: every rank does the same; collectives join all ranks
  std::int32_t first = 0, last = -1;
  std::int32_t cost_key = -1;  // index into Plan::cost_keys; -1: priced by kind and bytes
  std::int64_t bytes = 0;      // S of a collective (core/collective.hpp); input bytes of a codec
  double seconds = 0;  // computation as the Workload says; 0 for tasks that a cost model prices
};

/// Gradients exchanged together: members[begin, end) of the graph, in the order in which they lie
/// in the buffer.
struct Bucket {
  std::int32_t begin = 0, end = 0;
  DType dtype = DType::f32;
  std::int64_t elements = 0;
};

/// An edge into the following step: its task `to` waits for `from` of this step.
struct NextStepEdge {
  std::uint32_t from = 0, to = 0;
};

/// Tasks in topological order (every predecessor has a smaller index); tasks of one rank on one
/// resource run in this order. Predecessors of task i are preds[pred_begin[i] .. pred_begin[i +
/// 1]).
struct TaskGraph {
  std::string name;  // the variant: "steady", "first-step", ...
  std::vector<Task> tasks;
  std::vector<std::uint32_t> pred_begin{0};
  std::vector<std::uint32_t> preds;
  std::vector<NextStepEdge> next_step;
  std::vector<Bucket> buckets;
  std::vector<std::int32_t> members;  // gradient positions

  /// Appends a task that waits for the given earlier tasks; returns its index.
  template <typename... Ids>
  std::uint32_t add(const Task& task, Ids... after) {
    (preds.push_back(static_cast<std::uint32_t>(after)), ...);
    tasks.push_back(task);
    pred_begin.push_back(static_cast<std::uint32_t>(preds.size()));
    return static_cast<std::uint32_t>(tasks.size() - 1);
  }
  /// Gives the task appended last one more predecessor.
  void add_predecessor_to_last(std::uint32_t after) {
    preds.push_back(after);
    pred_begin.back() = static_cast<std::uint32_t>(preds.size());
  }
  /// Empties everything but keeps the memory: sweeps plan thousands of graphs.
  void clear();
};

/// Schema 1. Step s runs variant warm_up[s] while s < warm_up.size(), then cycle[(s -
/// warm_up.size()) % cycle.size()].
struct Plan {
  std::string strategy;  // canonical text
  std::string workload;  // its name
  int ranks = 1;
  std::vector<TaskGraph> variants;
  std::vector<std::int32_t> warm_up;
  std::vector<std::int32_t> cycle{0};
  std::vector<std::string> cost_keys;       // "encode codec(ratio=8)", ...
  std::vector<std::string> gradient_names;  // by position in ready order
  std::vector<std::string> layer_names;     // forward order

  const TaskGraph& variant_of_step(std::int64_t step) const;
  /// Over everything an executor obeys (tasks, order, edges, buckets, schedule), not over predicted
  /// seconds: ranks compare it before the first step.
  std::uint64_t hash() const;
};

/// Throws InternalError when a graph breaks the rules above (order, ranges, schedule).
void validate(const Plan&);
std::string to_json(const Plan&);
Plan plan_from_json(const std::string& text, const std::string& place);
Plan load_plan(const std::filesystem::path&);
void save(const Plan&, const std::filesystem::path&);

}  // namespace linerate::doc
