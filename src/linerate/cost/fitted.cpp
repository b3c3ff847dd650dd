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
  const auto found = std::lower_bound(
      cost.segments.begin(), cost.segments.end(), bytes,
      [](const doc::CostSegment& s, double b) { return static_cast<double>(s.to_bytes) < b; });
  return found == cost.segments.end() ? cost.segments.back() : *found;
}

struct Range {
  double from, to;
};

Range measured_range(const doc::CollectiveCost& cost) {
  if (!cost.samples.empty()) return {cost.samples.front().bytes, cost.samples.back().bytes};
  return {static_cast<double>(cost.segments.front().from_bytes),
          static_cast<double>(cost.segments.back().to_bytes)};
}

/// Doublings between the measured sizes and `bytes`; 0 inside.
double doublings_outside(const Range& range, double bytes) {
  if (bytes > range.to && range.to > 0) return std::log2(bytes / range.to);
  if (bytes < range.from) return std::log2(range.from / std::max(bytes, 1.0));
  return 0;
}

/// What does not shrink with the message: the fitted start-up time, never more than the quickest
/// sample.
double latency_part(const doc::CollectiveCost& cost, double seconds) {
  double latency = std::max(0.0, cost.segments.front().alpha_s);
  for (const doc::CostSample& sample : cost.samples) latency = std::min(latency, sample.seconds);
  return std::min(latency, seconds);
}

bool is_rooted(Collective c) { return c == Collective::broadcast || c == Collective::reduce; }

}  // namespace

Estimate evaluate(const doc::CollectiveCost& cost, double bytes) {
  const doc::CostSegment& segment = segment_of(cost, bytes);
  const Range range = measured_range(cost);
  const double distance = doublings_outside(range, bytes);
  // A secant that falls towards small sizes must not reach zero: half the bytes never take less
  // than half the time.
  const double floor =
      bytes < range.from && range.from > 0 ? at(segment, range.from) * bytes / range.from : 0;
  const double seconds = std::max(at(segment, bytes), floor);
  const double low = std::max(0.0, 1 - (1 - segment.low) * (1 + distance));
  const double high = 1 + (segment.high - 1) * (1 + distance);
  return {seconds, seconds * low, seconds * high, distance > 0};
}

Estimate evaluate_at_ranks(const doc::CollectiveCost& cost, double bytes, int ranks) {
  Estimate measured = evaluate(cost, bytes);
  if (ranks == cost.ranks) return measured;
  if (ranks <= 1 || cost.ranks <= 1) return {0, 0, 0, true};
  const double latency = latency_part(cost, measured.seconds);
  const double volume =
      bus_factor(cost.collective, ranks) / bus_factor(cost.collective, cost.ranks);
  const double tree = std::log2(ranks) / std::log2(cost.ranks);
  // A broadcast or reduction passes through a tree of ranks; the others through rings.
  const double ring = is_rooted(cost.collective)
                          ? tree
                          : static_cast<double>(ranks - 1) / static_cast<double>(cost.ranks - 1);
  const double bulk = measured.seconds - latency;
  const double seconds = latency * ring + bulk * volume;
  const double least = latency * std::min(ring, tree) + bulk * volume;
  const double most = latency * std::max(ring, tree) + bulk * volume;
  const double law = 1 + kLawErrorPerDoubling * std::abs(std::log2(ranks) - std::log2(cost.ranks));
  return {seconds, least * (measured.low / measured.seconds) / law,
          most * (measured.high / measured.seconds) * law, true};
}

}  // namespace linerate::cost
