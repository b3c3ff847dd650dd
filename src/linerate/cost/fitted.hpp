// Evaluates the fitted cost of a collective: bytes -> seconds with an interval, at the measured
// rank count or, by the collective's law, at another.
#pragma once

#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

/// `bytes` in the convention of core/collective.hpp. Outside the measured sizes the end segment
/// goes on, the interval widens by its own width (as a ratio, both ways) per doubling of the
/// distance, and the answer is marked extrapolated. Throws InternalError when the cost has no
/// segments.
Estimate evaluate(const doc::CollectiveCost& cost, double bytes);

/// The range of measured sizes; segments may go further.
struct MeasuredSizes {
  double from, to;
};
MeasuredSizes measured_sizes(const doc::CollectiveCost& cost);

/// The factors that move a measurement to another rank count; at its own all are 1.
struct RankLaw {
  double start = 1;                        // message steps, of a ring
  double start_least = 1, start_most = 1;  // of a ring and a tree, the fewer and the more
  double bulk = 1;                         // bytes per link
  double interval = 1;                     // on either side
  bool moved = false;
};
RankLaw law_of(const doc::CollectiveCost& cost, int ranks);

/// An Estimate taken apart: what bandwidth and compression scale (bulk) and what they do not
/// (start).
struct FittedSplit {
  double start = 0, bulk = 0;  // seconds

  double seconds() const { return start + bulk; }
};
FittedSplit split_at_ranks(const doc::CollectiveCost& cost, double bytes, const RankLaw& law);

/// The same with its interval.
struct FittedParts {
  FittedSplit split;
  double start_least = 0, start_most = 0;  // between the laws of a ring and of a tree
  double low = 1, high = 1;                // 90 % interval as factors of either end
  bool extrapolated = false;

  Estimate estimate() const {
    return {split.seconds(), low * (start_least + split.bulk), high * (start_most + split.bulk),
            extrapolated};
  }
};

/// The same collective on `ranks` ranks that the measurement did not cover. The latency part goes
/// with the number of message steps, n-1 for a ring and log2 n for a tree, the rest with the bytes
/// per link (bus_factor). Which of the two a library picks there is unknown: the ring is the
/// answer, the interval spans both and 10 % more per doubling of the ranks. Assumes the same kind
/// of link; a step from one node to several needs a measurement of that link.
FittedParts parts_at_ranks(const doc::CollectiveCost& cost, double bytes, const RankLaw& law);
inline FittedParts parts_at_ranks(const doc::CollectiveCost& cost, double bytes, int ranks) {
  return parts_at_ranks(cost, bytes, law_of(cost, ranks));
}

}  // namespace linerate::cost
