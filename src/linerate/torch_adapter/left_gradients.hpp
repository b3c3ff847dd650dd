// Tells gradients of this step from those that stood there before. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {

/// Which tensor stood in each parameter's .grad when the last step ended. Another one has been put
/// there since: by a backward pass, or by the program itself. One that was changed in place
/// (cleared to zeros, clipped) is still the same.
class LeftGradients {
 public:
  void note(const std::vector<Parameter>& parameters) {
    left_.clear();
    for (const Parameter& p : parameters) left_.emplace_back(p.tensor.grad().getIntrusivePtr());
  }
  /// `gradient`: what stands there now; false if nothing was noted of this parameter.
  bool is_left(std::size_t parameter, const at::Tensor& gradient) const {
    return parameter < left_.size() &&
           left_[parameter]._unsafe_get_target() == gradient.unsafeGetTensorImpl();
  }

 private:
  // Weak: none of their memory is kept, and no later tensor can have the same address.
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> left_;
};

}  // namespace linerate::torch_adapter
