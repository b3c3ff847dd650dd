// When factors and gradients of a step would be ready if nothing waited, and what they take on the
// network.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"
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
  /// Seconds of an all-reduce of so many elements of so many factors.
  std::function<double(std::int64_t, std::int64_t)> seconds_of_sums() const;
  /// Communication under forward and backward may be slower.
  Channel channel() const;

 private:
  void add_lane();
  double end_of(Handle h) const;
  double ready_s_of(std::size_t bucket) const;
  /// What each tensor adds to its message (add_tensor_times).
  double tensor_s() const { return input_.ranks > 1 ? input_.cost.cluster().tensor_s : 0; }

  const PassInput& input_;
  const StepDraft& step_;
  std::span<const Handle> computed_;
  std::vector<double> end_s_;  // of tasks of the compute lane up to the end of backward; -1: others
  double backward_end_s_ = 0;
  std::vector<Transfer> gradients_;
};

}  // namespace linerate::plan
