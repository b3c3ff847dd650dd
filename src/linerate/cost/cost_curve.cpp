#include "linerate/cost/cost_curve.hpp"

#include <algorithm>

#include "linerate/cost/fitted.hpp"

namespace linerate::cost {
namespace {

// T' = alpha + added + max(least, beta * factor) * S: latency does not scale with bandwidth.
FittedParts moved(FittedParts parts, double bytes, const FittedMove& move) {
  // A lower latency cannot save more than the start-up that was there.
  for (double* start : {&parts.start, &parts.start_least, &parts.start_most})
    *start = std::max(0.0, *start * move.start_factor + move.added_s);
  parts.bulk = std::max(parts.bulk * move.bulk_factor, move.least_beta_s_per_byte * bytes);
  parts.extrapolated = true;
  return parts;
}

}  // namespace

Estimate CostCurve::estimate(double bytes) const {
  if (!fitted) {
    const double t = seconds(bytes);
    return {t, t, t, false};
  }
  const FittedParts parts = parts_at_ranks(*fitted, bytes, ranks);
  return (move.moved ? moved(parts, bytes, move) : parts).estimate();
}

}  // namespace linerate::cost
