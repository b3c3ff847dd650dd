// Plans written by hand, task by task.
#pragma once


#include "linerate/doc/plan.hpp"

namespace linerate::support {

inline doc::Task work(doc::Resource resource, double seconds, std::int32_t group = doc::kWhole) {
  doc::Task task;
  task.kind = resource == doc::Resource::host ? doc::TaskKind::host : doc::TaskKind::compute;
  task.resource = resource;
  task.seconds = seconds;
  task.group = group;
  return task;
}

inline doc::Task compute(double seconds, std::int32_t group = doc::kWhole) {
  return work(doc::Resource::compute, seconds, group);
}

inline doc::Task exchange(std::int64_t bytes, std::int32_t group = doc::kWhole,
                          doc::TaskKind kind = doc::TaskKind::all_reduce) {
  doc::Task task;
  task.kind = kind;
  task.resource = doc::Resource::network;
  task.bytes = bytes;
  task.group = group;
  return task;
}

/// One empty variant, "steady", over and over.
inline doc::Plan empty_plan(int ranks) {
  doc::Plan plan;
  plan.ranks = ranks;
  plan.variants.emplace_back().name = "steady";
  return plan;
}

}  // namespace linerate::support
