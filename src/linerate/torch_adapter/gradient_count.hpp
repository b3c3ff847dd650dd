// Which gradients autograd has left in a step, and how many of them make a parameter complete.
// Private to torch_adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace linerate::torch_adapter {

/// The passes of one parameter since the last step ended.
struct ParameterStep {
  int gradients = 0;                     // accumulations in the synchronising part
  bool used = false;                     // any accumulation
  bool reported = false;                 // its backward task is done
  std::int64_t ready = -1;               // the moment of the last (MeasuredStep)
  std::optional<std::uint64_t> weights;  // a sample of the parameter's, at its first gradient
};

/// Learns how many gradients each parameter gets in a step. Shared modules and several backward
/// passes give it more than one, and its bucket must not leave before the last.
///
/// The first step teaches the number. A step with more teaches it at once, because sending too
/// early costs a second exchange. A step with fewer counts only after kPatience such steps in a
/// row, because waiting too long only costs overlap. For example a parameter gets 2, 2, 1, 3, 1, 1,
/// 1 gradients. After the first step 2 are expected, after the fourth 3, and after the seventh 1.
class GradientCount {
 public:
  explicit GradientCount(std::size_t parameters)
      : step_(parameters), expected_(parameters, 1), fewer_(parameters) {}

  std::size_t size() const { return step_.size(); }
  ParameterStep& operator[](std::size_t p) { return step_[p]; }
  const ParameterStep& operator[](std::size_t p) const { return step_[p]; }
  bool any() const {
    return std::any_of(step_.begin(), step_.end(), [](const ParameterStep& s) { return s.used; });
  }
  /// Gradients came that are to be exchanged; those that only accumulated do not count.
  bool any_to_exchange() const {
    return std::any_of(step_.begin(), step_.end(),
                       [](const ParameterStep& s) { return s.gradients > 0; });
  }
  /// Whether the last gradient of this step is there, judged by earlier steps.
  bool is_complete(std::size_t p) const { return !learning_ && step_[p].gradients == expected_[p]; }

  /// Forgets what was reported: the step's gradients are reported once more, in another round.
  void report_again() {
    for (ParameterStep& s : step_) s.reported = false;
  }
  /// By parameter: when its gradient was there, -1 if there was none. Ends the step.
  std::vector<std::int64_t> end_step() {
    std::vector<std::int64_t> ready;
    for (std::size_t p = 0; p < step_.size(); ++p) {
      ready.push_back(step_[p].ready);
      learn(p);
    }
    learning_ = false;
    discard();
    return ready;
  }
  /// Ends a step from which there is nothing to learn.
  void discard() { std::fill(step_.begin(), step_.end(), ParameterStep{}); }

 private:
  static constexpr int kPatience = 3;
  struct Fewer {
    int steps = 0;  // in a row
    int most = 0;   // gradients in any of them
  };

  void learn(std::size_t p) {
    const int found = step_[p].gradients;
    Fewer& fewer = fewer_[p];
    if (learning_ || found >= expected_[p]) {
      expected_[p] = std::max(1, found);
      fewer = {};
    } else if (found > 0) {
      fewer = {fewer.steps + 1, std::max(fewer.most, found)};
      if (fewer.steps < kPatience) return;
      expected_[p] = fewer.most;
      fewer = {};
    }
  }

  std::vector<ParameterStep> step_;
  std::vector<int> expected_;
  std::vector<Fewer> fewer_;
  bool learning_ = true;
};

}  // namespace linerate::torch_adapter
