// When factors and gradients of a step would be ready if nothing waited, and what they take on the
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/plan/passes.hpp"

namespace linerate::plan {

class FactorTraffic {
 public:
  /// `computed`: by factor, the task that computes it.
  FactorTraffic(const PassInput& input, const StepDraft& step, std::span<const Handle> computed);

  double backward_end_s() const { return backward_end_s_; }
  double ready_s(std::int32_t factor) const { return end_of(computed_[to_index(factor)]); }
  /// Buckets, which keep their order.
  const std::vector<Transfer>& gradients() const { return gradients_; }
  /// [blocks] the bucket that brings the last of its gradient.
  const std::vector<std::size_t>& last_bucket_of_blocks() const { return last_bucket_of_blocks_; }
  /// Seconds of an all-reduce of so many elements of so many factors.
  const MessageSeconds& seconds_of_sums() const { return seconds_of_sums_; }
  /// Communication under forward and backward may be slower.
  Channel channel() const;

 private:
  void add_lane();
  double end_of(Handle h) const;
  double ready_s_of(std::size_t bucket) const;

  const PassInput& input_;
  const StepDraft& step_;
  std::span<const Handle> computed_;
  MessageSeconds seconds_of_sums_;
  std::vector<double> end_s_;  // of tasks of the compute lane up to the end of backward; -1: others
  double backward_end_s_ = 0;
  std::vector<Transfer> gradients_;
  std::vector<std::size_t> last_bucket_of_blocks_;
};

// In which order groups of factors and buckets of gradients go over the network.

/// Factors that travel together.
struct FactorGroup {
  std::vector<std::int32_t> members;
  double ready_s = 0;
  std::size_t bucket = 0;  // they leave before it; beyond the last: after all buckets
};

/// Groups and buckets leave as they get ready, a group after the buckets that are ready when it is.
void order_by_readiness(const FactorTraffic& traffic, std::vector<FactorGroup>& groups);
/// That order, in which the buckets from this one on wait for all groups.
void let_buckets_wait(std::size_t from, std::vector<FactorGroup>& groups);
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
