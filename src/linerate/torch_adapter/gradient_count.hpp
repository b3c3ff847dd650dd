// Which gradients autograd has left in a step, and how many of them make a parameter complete.
// Private to torch_adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace linerate::torch_adapter {

/// What happened to one parameter since the last step ended.
struct ParameterStep {
  int gradients = 0;      // accumulations in the synchronising part
  bool used = false;      // any accumulation
  bool reported = false;  // its backward task is done
  double ready_s = -1;    // since the first gradient
};

/// Learns in the first step how many gradients each parameter gets (shared modules get several).
class GradientCount {
 public:
  explicit GradientCount(std::size_t parameters) : step_(parameters), expected_(parameters, 1) {}

  std::size_t size() const { return step_.size(); }
  ParameterStep& operator[](std::size_t p) { return step_[p]; }
  const ParameterStep& operator[](std::size_t p) const { return step_[p]; }
  int expected(std::size_t p) const { return expected_[p]; }
  bool learning() const { return learning_; }
  bool any() const {
    return std::any_of(step_.begin(), step_.end(), [](const ParameterStep& s) { return s.used; });
  }
  /// The last gradient of this step is there, as far as the first step tells.
  bool is_complete(std::size_t p) const { return !learning_ && step_[p].gradients == expected_[p]; }

  /// By parameter: when its gradient was there, negative where there was none. Ends the step.
  std::vector<double> end_step() {
    std::vector<double> ready_s;
    for (std::size_t p = 0; p < step_.size(); ++p) {
      ready_s.push_back(step_[p].ready_s);
      if (learning_) expected_[p] = std::max(1, step_[p].gradients);
      step_[p] = {};
    }
    learning_ = false;
    return ready_s;
  }

 private:
  std::vector<ParameterStep> step_;
  std::vector<int> expected_;
  bool learning_ = true;
};

}  // namespace linerate::torch_adapter
