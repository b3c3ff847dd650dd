// What tensors add to the messages that they travel in.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"

namespace linerate::plan {

/// How many tensors travel in the payloads of a task; flags and the like are one. 0: it has none.
std::int64_t tensors_of(const doc::TaskGraph& graph, const doc::Task& task);

/// Each collective takes `tensor_s` more for each tensor in its payloads (Cluster::tensor_s).
void add_tensor_times(double tensor_s, doc::TaskGraph& graph);

}  // namespace linerate::plan
