#include "linerate/cost/cost_curve.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::cost {
namespace {

// A lower latency cannot save more than the measured start-up.
double moved_start(double start, const FittedMove& move) {
  return std::max(0.0, start * move.start_factor + move.added_s);
}

// T' = alpha + added + max(least, beta * factor) * S: latency does not scale with bandwidth.
FittedSplit moved(const FittedSplit& split, double bytes, const FittedMove& move) {
  return {moved_start(split.start, move),
          std::max(split.bulk * move.bulk_factor, move.least_beta_s_per_byte * bytes)};
}

FittedParts moved(FittedParts parts, double bytes, const FittedMove& move) {
  parts.split = moved(parts.split, bytes, move);
  parts.start_least = moved_start(parts.start_least, move);
  parts.start_most = moved_start(parts.start_most, move);
  parts.extrapolated = true;
  return parts;
}

double mix(double a, double b, double weight) { return (1 - weight) * a + weight * b; }

FittedSplit between_counts(const FittedSplit& a, const FittedSplit& b, double w) {
  return {mix(a.start, b.start, w), mix(a.bulk, b.bulk, w)};
}

/// Between two measured rank counts, both brought to the same: straight in the weight. The interval
/// holds both at the middle.
FittedParts between_counts(const FittedParts& a, const FittedParts& b, double w) {
  FittedParts parts;
  parts.split = between_counts(a.split, b.split, w);
  parts.start_least = mix(a.start_least, b.start_least, w);
  parts.start_most = mix(a.start_most, b.start_most, w);
  const double all = parts.split.seconds();
  const double apart = std::abs(a.split.start + a.split.bulk - b.split.start - b.split.bulk);
  const double doubt = all > 0 ? 1 + 2 * w * (1 - w) * apart / all : 1;
  parts.low = mix(a.low, b.low, w) / doubt, parts.high = mix(a.high, b.high, w) * doubt;
  parts.extrapolated = true;
  return parts;
}

Estimate sum(const Estimate& a, const Estimate& b) {
  return {a.seconds + b.seconds, a.low + b.low, a.high + b.high, a.extrapolated || b.extrapolated};
}

}  // namespace

FittedParts FittedPart::parts(double asked) const {
  const double bytes = asked * share;
  FittedParts all = parts_at_ranks(*table, bytes, law);
  if (above) all = between_counts(all, parts_at_ranks(*above, bytes, law_above), above_weight);
  return move.moved ? moved(all, bytes, move) : all;
}

double FittedPart::seconds(double asked) const {
  const double bytes = asked * share;
  FittedSplit all = split_at_ranks(*table, bytes, law);
  if (above) all = between_counts(all, split_at_ranks(*above, bytes, law_above), above_weight);
  return (move.moved ? moved(all, bytes, move) : all).seconds();
}

double CostCurve::fitted_seconds(double bytes) const {
  double all = fitted.seconds(bytes) + line(bytes);
  if (between) all += between.seconds(bytes);
  return std::max(all, floor_s_per_byte * bytes);
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

double CostCurve::tree_up_to() const {
  double size = 0;
  if (!trees) return size;
  for (const Line& tree : *trees) {
    const double saved = line.alpha_s - tree.alpha_s;  // at no bytes
    const double lost = tree.beta_s_per_byte - line.beta_s_per_byte;
    if (saved > 0) size = std::max(size, lost > 0 ? saved / lost : INFINITY);
  }
  return size;
}

}  // namespace linerate::cost
