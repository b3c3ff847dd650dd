// Notices that a model's tensors have moved or changed. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "linerate/torch_adapter/options.hpp"

namespace linerate::torch_adapter {

/// Remembers where tensors lie and how they are laid out; addresses are compared, never followed.
class ModelWatch {
 public:
  ModelWatch(const NamedTensors& parameters, const NamedTensors& buffers);

  /// Any difference: loaded (torch::load gives new memory), moved, retyped, thawed. Values written
  /// in place, as by optimizers, do not count, nor does a parameter frozen since, which counts as
  /// unused.
  bool changed() const;
  /// A difference that needs another plan, not only other memory.
  bool reshaped() const;
  /// Accepts what is there now.
  void accept();

 private:
  struct Seen {
    at::Tensor tensor;
    const void* data = nullptr;
    at::ScalarType type{};
    at::Device device{at::kCPU};
    std::vector<std::int64_t> sizes, strides;
    bool requires_grad = false;
    void take();
    bool moved() const { return data != tensor.const_data_ptr(); }
    bool reshaped() const;
  };
  std::vector<Seen> seen_;
};

}  // namespace linerate::torch_adapter
