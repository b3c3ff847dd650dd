// Tells gradients of this step from those that stood there before. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

/// Notes which tensor stands in each parameter's .grad when a step ends. If another tensor stands
/// there later, a backward pass or the program has put it there since. A tensor that was changed in
/// place (cleared to zeros, clipped) is still the same.
class LeftGradients {
 public:
  void note(const std::vector<Parameter>& parameters) {
    left_.clear();
    for (const Parameter& p : parameters) left_.emplace_back(p.tensor.grad().getIntrusivePtr());
  }
  /// `gradient`: the tensor that stands there now. False if none was noted for this parameter.
  bool is_left(std::size_t parameter, const at::Tensor& gradient) const {
    return parameter < left_.size() &&
           left_[parameter]._unsafe_get_target() == gradient.unsafeGetTensorImpl();
  }

 private:
  // Weak pointers keep no gradient's memory, and their addresses are not given to later tensors.
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> left_;
};

}  // namespace linerate::torch_adapter
