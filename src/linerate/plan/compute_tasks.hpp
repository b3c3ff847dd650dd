// The computation of a step as tasks: what the Workload says, and what it leaves open made whole.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::plan {

/// The parts of T_1. Measured parts are kept where they fit into the measured step; what T_1 holds
/// beyond them is `tail`; parts that add up to more than T_1 are shrunk alike, so that forward +
/// backward + update + tail = T_1 always. An unknown forward pass gets what nothing else claims.
struct StepParts {
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;
  double tail_s = 0;
};
StepParts parts_of(const doc::Workload& workload);

/// One task a layer where every layer's time is known, else one for all. Returns the last one.
std::uint32_t add_forward(const doc::Workload& workload, double forward_s, doc::TaskGraph& graph);

/// The backward tasks of positions [next, until), each following the one before.
void add_backward(const doc::Workload& workload, std::int32_t next, std::int32_t until,
                  doc::TaskGraph& graph);

/// What backward still computes after the last gradient, if anything.
void add_backward_rest(const doc::Workload& workload, doc::TaskGraph& graph);

/// A computation that the executor observes or runs on the compute resource.
doc::Task compute_task(doc::TaskKind kind, double seconds, std::int32_t first = 0,
                       std::int32_t last = -1);

}  // namespace linerate::plan
