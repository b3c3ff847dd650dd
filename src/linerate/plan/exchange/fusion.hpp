// What exchanges share: their only common option, and how they cut gradients into buckets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/cost_curve.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {

/// Makes an exchange that has no option but wire=.
template <class Of>
std::unique_ptr<const Exchange> make_with_wire(const doc::Component& component) {
  doc::OptionReader options(component);
  const auto wire = options.wire();
  options.finish();
  return std::make_unique<Of>(wire);
}

/// What the collective of a bucket takes, by its bytes.
inline cost::CostCurve exchange_curve(const FusionInput& input) {
  const Collective collective = input.form.gather ? Collective::all_gather : Collective::all_reduce;
  return cost::cost_curve(input.cost, collective, input.ranks,
                          input.form.dtype(input.workload.gradients.front().dtype));
}

// Costs that are no lines, for rules that know only lines.

/// The line through the costs of two sizes; flat if they fall, and never below 0 at size 0.
inline cost::Line line_through(double least, double least_s, double most, double most_s) {
  const double beta = most > least ? std::max(0.0, (most_s - least_s) / (most - least)) : 0;
  return {std::max(0.0, least_s - beta * least), beta};
}

// Cutting a list of gradients into buckets.

/// Positions 0 .. L-1: the order in which gradients get ready.
std::vector<std::int32_t> ready_order(const doc::Workload& workload);
/// Positions by descending registration: what a rank assumes before it has seen a backward pass.
std::vector<std::int32_t> reverse_registration_order(const doc::Workload& workload);

/// PyTorch DDP's rule. For each dtype, a bucket closes with the tensor that reaches its limit.
/// Limits apply in turn, and the last one to all buckets that follow. Tensors are never split.
void append_by_limits(const doc::Workload& workload, std::span<const std::int32_t> order,
                      std::span<const std::int64_t> limits, doc::TaskGraph& graph);

/// One bucket of the consecutive positions [begin, end), which must share a dtype.
void append_range(const doc::Workload& workload, std::int32_t begin, std::int32_t end,
                  doc::TaskGraph& graph);

// The exact fusion of gradients on one FIFO channel, by dynamic programming.

/// Gradients 1 .. L in ready order.
struct FusionProblem {
  std::span<const double> ready_s;      // [L], never decreasing
  std::span<const double> bytes;        // [L], as they count on the wire
  std::span<const std::int32_t> fence;  // [L] first gradient that may share a bucket with l
  double cap_bytes = std::numeric_limits<double>::infinity();  // a lone gradient may exceed it
};

/// The ends of the buckets, ascending, the last one L. They are those of F[L], where F[j] = min
/// over i < j of max(F[i], ready_j) + T(P_j - P_i). A bucket is i+1 .. j. Exact for costs of size
/// alone. Ties go to fewer buckets, then to the smaller i. O(L^2) time, O(L) memory.
std::vector<std::int32_t> optimal_fusion(const FusionProblem& problem, const cost::CostCurve& cost);

// Fusion of gradients for a decoupled exchange: reduce-scatter under backward, all-gather under the
// next forward pass.

/// Gradients 1 .. L in ready order.
struct DecoupledProblem {
  std::vector<double> ready_s{};         // [L] since backward began, never decreasing
  std::vector<double> bytes{};           // [L] as they count on the wire
  std::vector<std::int32_t> fence{};     // [L] first gradient that may share a bucket with l
  std::vector<double> forward_left_s{};  // [L] of forward and updates, when l is first needed
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
