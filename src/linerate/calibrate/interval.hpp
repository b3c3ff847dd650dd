// 90 % intervals of a fitted curve, from its leave-one-out errors.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "linerate/calibrate/curve.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// predicted / measured - 1 of a sample that the fit did not see.
struct HeldOutError {
  std::size_t sample = 0;
  double relative_error = 0;
};

/// Sets low and high of cost.segments. `errors` ascend by sample and are not empty. Each interval
/// also covers the tables `without` a sample. Segments inside the bracket of a switch of `curve`
/// are cut in four, and the interval of each covers the regimes on both sides.
void set_intervals(doc::CollectiveCost& cost, const Curve& curve,
                   std::span<const HeldOutError> errors,
                   std::span<const doc::CollectiveCost> without);

/// The link under a ring of cost.ranks ranks: cost/closed_form.hpp's ring, solved for alpha and
/// beta. The latency of a message step comes from the smallest sizes, the bandwidth from the
/// largest.
doc::Link link_of(const doc::CollectiveCost& cost);

}  // namespace linerate::calibrate
