// When factors and gradients of a step would be ready if nothing waited, and what they take on the
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {

struct FactorTraffic {
  double backward_end_s = 0;
  std::vector<double> ready_s{};      // [factors]
  std::vector<Transfer> gradients{};  // buckets, which keep their order
  /// [blocks] the bucket that brings the last of its gradient.
  std::vector<std::size_t> last_bucket_of_blocks{};
  /// Seconds of an all-reduce of so many elements of so many factors.
  MessageSeconds seconds_of_sums{};
  /// Communication under forward and backward may be slower.
  Channel channel{};
};

/// `computed`: by factor, the task that computes it.
FactorTraffic traffic_of(const PassInput& input, const StepDraft& step,
                         std::span<const Handle> computed);

// In which order groups of factors and buckets of gradients go over the network.

/// Factors that travel together.
struct FactorGroup {
  std::vector<std::int32_t> members;
  double ready_s = 0;
  std::size_t bucket = 0;  // they leave before it; beyond the last: after all buckets
};

/// The network up to the last of both.
FactorArrivals arrivals_of(const PassInput& input, const FactorTraffic& traffic,
                           const std::vector<FactorGroup>& groups);

// Which factors travel together, and when (reference: Shi, Zhang & Li 2021, SPD-KFAC).

/// In their order on the network, which is agreed with the gradients'.
std::vector<FactorGroup> group_factors(const PassInput& input, const StepDraft& step,
                                       const FactorTraffic& traffic);

/// Groups leave as they get ready, not all after backward. How often a layer is used is not known
/// yet in the first step: its factors are whole once backward is over.
inline bool factors_overlap(const PassInput& input) {
  return input.curvature->kfac.overlaps_factors() && !input.first_step;
}

// What tensors add to the messages that they travel in.

/// How many tensors travel in the payloads of a task; flags and the like are one. 0: it has none.
std::int64_t tensors_of(const doc::TaskGraph& graph, const doc::Task& task);

/// Each collective takes `tensor_s` more for each tensor in its payloads (Cluster::tensor_s).
void add_tensor_times(double tensor_s, doc::TaskGraph& graph);

}  // namespace linerate::plan
