#include "linerate/cost/cost_curve.hpp"

#include <algorithm>
#include <cmath>

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

/// Between two measured rank counts, both brought to the same: straight in the weight. The interval
/// holds both at the middle.
FittedParts between_counts(const FittedParts& a, const FittedParts& b, double w) {
  const auto mix = [w](double x, double y) { return (1 - w) * x + w * y; };
  FittedParts parts;
  parts.start = mix(a.start, b.start), parts.bulk = mix(a.bulk, b.bulk);
  parts.start_least = mix(a.start_least, b.start_least);
  parts.start_most = mix(a.start_most, b.start_most);
  const double all = parts.start + parts.bulk;
  const double apart = std::abs(a.start + a.bulk - b.start - b.bulk);
  const double doubt = all > 0 ? 1 + 2 * w * (1 - w) * apart / all : 1;
  parts.low = mix(a.low, b.low) / doubt, parts.high = mix(a.high, b.high) * doubt;
  parts.extrapolated = true;
  return parts;
}

Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.seconds + b.seconds, a.low + b.low, a.high + b.high, a.extrapolated || b.extrapolated};
}

}  // namespace

FittedParts FittedPart::parts(double asked) const {
  const double bytes = asked * share;
  FittedParts all = parts_at_ranks(*table, bytes, ranks);
  if (above) all = between_counts(all, parts_at_ranks(*above, bytes, ranks), above_weight);
  return move.moved ? moved(all, bytes, move) : all;
}

Estimate CostCurve::estimate(double bytes) const {
  if (!fitted) {
    const double t = seconds(bytes);
    return {t, t, t, false};
  }
  const double added = line(bytes);
  Estimate all = sum(fitted.parts(bytes).estimate(), {added, added, added, has_links});
  if (between) all = sum(all, between.parts(bytes).estimate());
  const double floor = floor_s_per_byte * bytes;
  return {std::max(all.seconds, floor), std::max(all.low, floor), std::max(all.high, floor),
          all.extrapolated};
}

std::vector<double> CostCurve::joints() const {
  std::vector<double> sizes;
  for (const FittedPart* part : {&fitted, &between})
    for (const doc::CollectiveCost* table : {part->table, part->above})
      if (table)
        for (const doc::CostSegment& segment : table->segments)
          sizes.push_back(static_cast<double>(segment.to_bytes) / part->share);
  if (!fitted && add)
    for (const AddTable::Piece& piece : add->pieces())
      if (std::isfinite(piece.to_bytes)) sizes.push_back(piece.to_bytes / add_share);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace linerate::cost
