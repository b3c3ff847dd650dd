#include "linerate/cost/fitted.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"

namespace linerate::cost {
namespace {

// Stated, not measured: ring, tree and channel count change with the ranks in ways one table cannot
// show.
constexpr double kLawErrorPerDoubling = 0.10;

double at(const doc::CostSegment& segment, double bytes) {
  return segment.alpha_s + segment.beta_s_per_byte * bytes;
}

/// The first segment that ends at or above `bytes`; the last one beyond.
const doc::CostSegment& segment_of(const doc::CollectiveCost& cost, double bytes) {
  LINERATE_CHECK(!cost.segments.empty(), fmt::format("{} on {} ranks has no segments",
                                                     name_of(cost.collective), cost.ranks));
  // std::lower_bound without its branches: which segment comes out is hard to foresee.
  const doc::CostSegment* found = cost.segments.data();
  for (std::size_t left = cost.segments.size(); left > 1; left -= left / 2)
    found += static_cast<double>(found[left / 2 - 1].to_bytes) < bytes
                 ? static_cast<std::ptrdiff_t>(left / 2)
                 : 0;
  return *found;
}

/// Doublings between the measured sizes and `bytes`; 0 inside.
double doublings_outside(const MeasuredSizes& range, double bytes) {
  if (bytes > range.to && range.to > 0) return std::log2(bytes / range.to);
  if (bytes < range.from) return std::log2(range.from / std::max(bytes, 1.0));
  return 0;
}

bool is_rooted(Collective c) { return c == Collective::broadcast || c == Collective::reduce; }

double tree_steps(int ranks, int measured) { return std::log2(ranks) / std::log2(measured); }

/// How many times more message steps. A broadcast or reduction passes through a tree of ranks; the
/// others through rings.
double step_factor(Collective collective, int ranks, int measured) {
  if (ranks == measured) return 1;
  return is_rooted(collective) ? tree_steps(ranks, measured)
                               : static_cast<double>(ranks - 1) / static_cast<double>(measured - 1);
}

/// As measured.
FittedSplit split(const doc::CollectiveCost& cost, const doc::CostSegment& segment,
                  const MeasuredSizes& range, double bytes) {
  // A secant that falls towards small sizes must not reach zero: half the bytes never take less
  // than half the time.
  const double floor =
      bytes < range.from && range.from > 0 ? at(segment, range.from) * bytes / range.from : 0;
  const double measured = at(segment, bytes), seconds = std::max(measured, floor);
  const double start = std::min(std::max(0.0, cost.segments.front().alpha_s), seconds);
  // Not the difference of two start-ups: a bandwidth a million times lower makes its rounding
  // large.
  if (measured >= floor)
    return {start, std::max(0.0, segment.alpha_s - start + segment.beta_s_per_byte * bytes)};
  return {start, seconds - start};
}

FittedSplit moved(const FittedSplit& measured, const RankLaw& law) {
  return {measured.start * law.start, measured.bulk * law.bulk};
}

}  // namespace

MeasuredSizes measured_sizes(const doc::CollectiveCost& cost) {
  if (!cost.samples.empty()) return {cost.samples.front().bytes, cost.samples.back().bytes};
  return {static_cast<double>(cost.segments.front().from_bytes),
          static_cast<double>(cost.segments.back().to_bytes)};
}

RankLaw law_of(const doc::CollectiveCost& cost, int ranks) {
  RankLaw law;
  if (ranks == cost.ranks) return law;
  law.moved = true;
  if (ranks <= 1 || cost.ranks <= 1) {
    law.start = law.start_least = law.start_most = law.bulk = 0;
    return law;
  }
  const double ring = step_factor(cost.collective, ranks, cost.ranks);
  const double tree = tree_steps(ranks, cost.ranks);
  law.start = ring;
  law.start_least = std::min(ring, tree);
  law.start_most = std::max(ring, tree);
  law.bulk = bus_factor(cost.collective, ranks) / bus_factor(cost.collective, cost.ranks);
  law.interval = 1 + kLawErrorPerDoubling * std::abs(std::log2(ranks) - std::log2(cost.ranks));
  return law;
}

FittedSplit split_at_ranks(const doc::CollectiveCost& cost, double bytes, const RankLaw& law) {
  return moved(split(cost, segment_of(cost, bytes), measured_sizes(cost), bytes), law);
}

FittedParts parts_at_ranks(const doc::CollectiveCost& cost, double bytes, const RankLaw& law) {
  const doc::CostSegment& segment = segment_of(cost, bytes);
  const MeasuredSizes range = measured_sizes(cost);
  const FittedSplit measured = split(cost, segment, range, bytes);
  const double distance = doublings_outside(range, bytes);
  FittedParts parts;
  parts.split = moved(measured, law);
  parts.start_least = measured.start * law.start_least;
  parts.start_most = measured.start * law.start_most;
  // Below, the excess of 1 / low grows as that of high does above: a time never reaches 0.
  parts.low = segment.low / (segment.low + (1 - segment.low) * (1 + distance)) / law.interval;
  parts.high = (1 + (segment.high - 1) * (1 + distance)) * law.interval;
  parts.extrapolated = distance > 0 || law.moved;
  return parts;
}

Estimate evaluate(const doc::CollectiveCost& cost, double bytes) {
  return parts_at_ranks(cost, bytes, RankLaw{}).estimate();
}

}  // namespace linerate::cost
