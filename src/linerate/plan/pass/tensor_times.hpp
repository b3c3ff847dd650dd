// What tensors add to the messages that they travel in.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::plan {

/// Each collective takes `tensor_s` more for each tensor in its payloads (Cluster::tensor_s).
void add_tensor_times(double tensor_s, doc::TaskGraph& graph);

}  // namespace linerate::plan
