// Notices that an ATen operator is about to read a weight. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace linerate::torch_adapter {

/// Calls back before an operator reads a watched weight. C++ modules have no forward hooks, so a
/// RecordFunction callback looks at the inputs of every operator (weight_table.hpp). Reads through
/// raw pointers are not noticed.
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
