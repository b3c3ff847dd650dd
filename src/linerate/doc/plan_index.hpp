// What simulator and runner both derive from a Plan: successors, lanes, subjects and names of
// tasks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "linerate/doc/plan.hpp"

namespace linerate::doc {

inline constexpr std::size_t kLanes = kResourceNames.size();

/// Who waits for whom among things that are numbered through, such as tasks.
struct Waits {
  std::vector<std::int32_t> waits;                         // of each, for how many
  std::vector<std::uint32_t> successor_begin, successors;  // CSR

  /// `for_edges` calls action(before, after) for each edge. The first pass counts the successors,
  /// the second one fills them in.
  template <typename ForEdges>
  Waits(std::size_t count, const ForEdges& for_edges)
      : waits(count, 0), successor_begin(count + 1, 0) {
    for_edges([this](std::uint32_t before, std::uint32_t after) {
      ++waits[after];
      ++successor_begin[before + 1];
    });
    for (std::size_t i = 0; i < count; ++i) successor_begin[i + 1] += successor_begin[i];
    successors.resize(successor_begin.back());
    std::vector<std::uint32_t> next(successor_begin.begin(), successor_begin.end() - 1);
    for_edges([this, &next](std::uint32_t before, std::uint32_t after) {
      successors[next[before]++] = after;
    });
  }

  std::span<const std::uint32_t> successors_of(std::size_t i) const {
    return {successors.data() + successor_begin[i], successors.data() + successor_begin[i + 1]};
  }
};

/// The tasks of one variant, as one rank has them or, without `rank`, as all have them together.
struct VariantIndex : Waits {
  VariantIndex(const Plan& plan, const TaskGraph& graph, std::int32_t rank = -1);

  std::array<std::vector<std::uint32_t>, kLanes> lanes;  // tasks by resource, in Plan order
  std::vector<bool> has;                                 // [tasks] whether the rank has the task

 private:
  VariantIndex(const TaskGraph& graph, std::vector<bool> has);
};

/// Positions of the gradients that a task is about, ascending; empty if it is about none.
std::vector<std::int32_t> gradients_of(const Plan& plan, const TaskGraph& graph, const Task& task);

/// What a task is about, in a word: "layer1.conv", "bucket 3", "flags". Empty if it is about the
/// whole step.
std::string subject_of(const Plan& plan, const TaskGraph& graph, const Task& task);

/// "all-reduce bucket 3": the name of a collective in errors and of an executed task in Timelines,
/// predicted and recorded.
std::string title_of(const Plan& plan, const TaskGraph& graph, const Task& task);

/// The name of a task in a Timeline, predicted or recorded. Executed tasks, and preconditioning,
/// have their title_of. Observed forward and backward tasks have the name of their layer, or of the
/// gradient if its layer is unknown. Other observed tasks have none.
std::string event_name_of(const Plan& plan, const TaskGraph& graph, const Task& task);

/// The layer whose gradient a task is about; -1 if that is unknown, or it is about several.
/// Timelines join the backward tasks of a layer that follow each other.
std::int32_t layer_of(const Plan& plan, const Task& task);

}  // namespace linerate::doc
