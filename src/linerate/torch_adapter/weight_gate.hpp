// Notices that an ATen operator is about to read a weight. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace linerate::torch_adapter {

/// C++ modules have no forward hooks. A RecordFunction callback looks at the inputs of every
/// operator, on any thread, as long as anything is watched; weights are found by their storage, so
/// that a view (a Linear's transposed weight) is found too. Raw pointers are not noticed.
class WeightGate {
 public:
  /// `before_use(i)` runs on the operator's thread, before its kernel. What it throws is lost.
  explicit WeightGate(std::function<void(std::size_t)> before_use);
  ~WeightGate();
  WeightGate(const WeightGate&) = delete;
  WeightGate& operator=(const WeightGate&) = delete;

  /// Operators that read weights[i] count as use of `index`, until forgotten.
  void watch(const std::vector<at::Tensor>& weights, std::size_t index);
  void forget(std::size_t index);

 private:
  using BeforeUse = std::function<void(std::size_t)>;
  std::shared_ptr<const BeforeUse> before_use_;
};

}  // namespace linerate::torch_adapter
