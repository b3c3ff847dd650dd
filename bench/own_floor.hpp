// What a step takes at least by its own Plan: as long as its parts were measured, the network at
// line rate and without latency.
#pragma once

#include <optional>

#include "linerate/core/units.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::bench {

/// Of one rank, medians over steps.
struct ComputedParts {
  double forward_s = 0;
  double backward_s = 0;  // what the Plan executes in its hooks included
  double copy_s = 0;      // of that: gradients made ready for their buckets
};

/// The steady step, simulated: encodes, decodes, copies and updates as long as the median of the
/// recorded events of their names, gradients ready where `ready` has them between the ends of the
/// measured backward pass. Absent where the next step overlaps with this one ("dear"): its forward
/// pass holds waits, which no part's time tells apart.
std::optional<double> own_floor_s(const doc::Plan& plan, const doc::Workload& ready,
                                  const doc::Timeline& recorded, const ComputedParts& parts,
                                  BytesPerSecond line_rate);

}  // namespace linerate::bench
