// The computation of a step: what the Workload says, and the rest completed.
#pragma once

#include <cstdint>

#include "linerate/doc/plan.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {

bool every_layer_timed(const doc::Workload& workload);
/// Every gradient names the layer of its parameter.
bool gradients_know_layers(const doc::Workload& workload);

/// A computation that others drive and report.
doc::Task observed_task(doc::TaskKind kind, std::int16_t operation, double seconds);

// When a step with K-FAC ends, as the searches for its order and its placement see it.

/// Seconds until every direction is made and every gradient there. Of a step of K-FAC whose
/// inverses need no owners of layers, and after the passes that make it.
double step_end_s(const PassInput& input, const StepDraft& step);

}  // namespace linerate::plan
