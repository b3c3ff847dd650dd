// The computation of a step: what the Workload says, and the rest completed.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::plan {

/// The parts of T_1. Measured parts are kept if they fit into the measured step; what T_1 holds
/// beyond them is `tail`; parts that add up to more than T_1 are shrunk alike, so that forward +
/// backward + update + tail = T_1 always. An unknown forward pass gets what nothing else claims.
struct StepParts {
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;
  double tail_s = 0;
};
StepParts parts_of(const doc::Workload& workload);

bool every_layer_timed(const doc::Workload& workload);
/// Every gradient names the layer of its parameter.
bool gradients_know_layers(const doc::Workload& workload);

/// A computation that others drive and report.
doc::Task observed_task(doc::TaskKind kind, std::int16_t operation, double seconds);

}  // namespace linerate::plan
