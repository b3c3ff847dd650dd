// The buffers that gradients are exchanged in: each bucket one array, each gradient a view of it.
// Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "linerate/exec/step_executor.hpp"

namespace linerate::torch_adapter {

/// Shapes: gradients g[n_i], i = position in the plan -> bucket[sum n_i] -> wire[sum n_i], the
/// bucket itself unless the plan asks for another element type.
class BucketMemory : public exec::Payloads {
 public:
  /// Lays out the buckets of a graph; parameter_at[i] is the parameter at position i of the plan.
  /// Gradients that are views of an earlier layout keep that layout's memory alive.
  void lay_out(const doc::TaskGraph& graph, const std::vector<at::Tensor>& parameter_at);
  bool laid_out_for(const doc::TaskGraph& graph) const { return graph_ == &graph; }
  void forget() { graph_ = nullptr; }

  /// slot = scale * gradient, in one pass, in the wire's type too. The gradient may be the slot
  /// itself. Throws UsageError for a sparse gradient.
  void fill(std::int32_t position, const at::Tensor& gradient, double scale);
  void fill_zeros(std::int32_t position);
  /// The slot in the shape and strides of its parameter.
  const at::Tensor& view(std::int32_t position) const {
    return slots_[static_cast<std::size_t>(position)].view;
  }
  bool is_view(std::int32_t position, const at::Tensor& gradient) const;
  std::int64_t wire_bytes() const { return wire_bytes_; }

  comm::Buffer buffer(const doc::TaskGraph& graph, const doc::Task& task) override;
  void arrived(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  struct Slot {
    at::Tensor view;
    at::Tensor wire;  // undefined where the bucket itself travels
  };
  struct BucketTensors {
    at::Tensor values;
    at::Tensor wire;
    DType wire_dtype = DType::f32;
  };

  const doc::TaskGraph* graph_ = nullptr;
  std::vector<BucketTensors> buckets_;
  std::vector<Slot> slots_;
  std::int64_t wire_bytes_ = 0;
};

}  // namespace linerate::torch_adapter
