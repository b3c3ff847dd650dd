#include "linerate/cost/cost_curve.hpp"

#include <algorithm>

#include "linerate/cost/fitted.hpp"

namespace linerate::cost {
namespace {

// T' = alpha + added + max(least, beta * factor) * S: latency does not scale with bandwidth.
double moved_seconds(double seconds, double latency, double bytes, const FittedMove& move) {
  const double alpha = std::min(latency, seconds) * move.share;
  const double bulk = (seconds * move.share - alpha) * move.bulk_factor;
  return alpha + move.added_s + std::max(bulk, move.least_beta_s_per_byte * bytes);
}

}  // namespace

Estimate CostCurve::estimate(double bytes) const {
  if (!fitted) {
    const double t = seconds(bytes);
    return {t, t, t, false};
  }
  Estimate e =
      ranks == fitted->ranks ? evaluate(*fitted, bytes) : evaluate_at_ranks(*fitted, bytes, ranks);
  if (!move.moved) return e;
  const double latency = std::max(0.0, fitted->segments.front().alpha_s);
  return {moved_seconds(e.seconds, latency, bytes, move),
          moved_seconds(e.low, latency, bytes, move), moved_seconds(e.high, latency, bytes, move),
          true};
}

}  // namespace linerate::cost
