// Plans written by hand, task by task.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::support {

inline doc::Task work(doc::Resource resource, double seconds, std::int32_t group = doc::kWhole) {
  const bool is_host = resource == doc::Resource::host;
  return {.kind = is_host ? doc::TaskKind::host : doc::TaskKind::compute,
          .resource = resource,
          .group = group,
          .seconds = seconds};
}

inline doc::Task compute(double seconds, std::int32_t group = doc::kWhole) {
  return work(doc::Resource::compute, seconds, group);
}

inline doc::Task exchange(std::int64_t bytes, std::int32_t group = doc::kWhole,
                          doc::TaskKind kind = doc::TaskKind::all_reduce) {
  return {.kind = kind, .resource = doc::Resource::network, .group = group, .bytes = bytes};
}

/// One empty variant, "steady", over and over.
inline doc::Plan empty_plan(int ranks) {
  doc::Plan plan;
  plan.ranks = ranks;
  plan.variants.emplace_back().name = "steady";
  return plan;
}

}  // namespace linerate::support
