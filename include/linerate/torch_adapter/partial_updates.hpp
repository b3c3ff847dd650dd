// Optimizers that LibTorch does not know, such as Python's: what DataParallel asks of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "linerate/compress/steps_by.hpp"

namespace at {
class Tensor;
}

namespace linerate::torch_adapter {

/// An optimizer that is stepped after an exchange, as far as it decides whether that is right.
struct SteppedOptimizer {
  std::string name;               // in messages: "SGD(momentum=0.9)"
  std::uintptr_t identity = 0;    // in two steps the same if it is the same one; not 0
  std::vector<at::Tensor> holds;  // its parameters; empty: unknown, and not looked at
  compress::StepsBy steps_by = compress::StepsBy::gradients;  // what its steps follow
};

/// One step, in parts: parameters are updated at different times. Each part is updated once, in any
/// order and on any thread, with the result of the whole step. Options (learning rates) are those
/// at capture(). Thread safety: called by one thread at a time, whichever it is.
class PartialUpdates {
 public:
  virtual ~PartialUpdates() = default;

  /// Begins the step that the optimizer would do now; parts[i] are parameters (those that the
  /// optimizer does not hold are left alone). What else it holds and has a gradient is updated at
  /// once.
  virtual void capture(const std::vector<std::vector<at::Tensor>>& parts) = 0;
  /// Updates the parameters of some parts: of part `which[i]`, whose k-th parameter has the
  /// gradient gradients[i][k], undefined if it has none. Their .grad is unchanged afterwards.
  virtual void update(const std::vector<std::size_t>& which,
                      const std::vector<std::vector<at::Tensor>>& gradients) = 0;
  /// Whether one update() of several parts is shorter than one of each. Then those that have
  /// arrived are updated together.
  virtual bool is_shorter_together() const { return false; }
  /// All parts have been updated.
  virtual void release() = 0;
};

}  // namespace linerate::torch_adapter
