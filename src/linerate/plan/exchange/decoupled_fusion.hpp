// Fusion of gradients for a decoupled exchange: reduce-scatter under backward, all-gather under the
// next forward pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/cost/cost_curve.hpp"

namespace linerate::plan {

/// Gradients 1 .. L in ready order.
struct DecoupledProblem {
  std::span<const double> ready_s;         // [L] since backward began, never decreasing
  std::span<const double> bytes;           // [L] as they count on the wire
  std::span<const std::int32_t> fence;     // [L] first gradient that may share a bucket with l
  std::span<const double> forward_left_s;  // [L] of forward and updates, when l is first needed
  double backward_s = 0;
};

struct DecoupledResult {
  double step_s = 0;               // backward, exchange and forward, one after the other
  std::vector<std::int32_t> ends;  // of the buckets, ascending, the last one L
};

/// Minimises max(R + G, backward + forward) over buckets of consecutive gradients i+1 .. j:
///
///   R[j] = max(R[i], ready_j) + T_reduce_scatter(P_j - P_i)     the channel, in ready order
///   G[j] = max(G[i], left(i, j)) + T_all_gather(P_j - P_i)      the channel, in forward order
///
/// left(i, j) is the largest forward_left of the bucket. A bucket's all-gather comes before those
/// of earlier gradients, and the rest of the forward pass follows whichever arrives last. Both
/// values only grow with R[i] and G[i], so it is enough to keep the prefixes that no other one
/// beats in both. The result is exact, except for the cap on how many of those are kept.
DecoupledResult decoupled_fusion(const DecoupledProblem& problem,
                                 const cost::CostCurve& reduce_scatter,
                                 const cost::CostCurve& all_gather);

}  // namespace linerate::plan
