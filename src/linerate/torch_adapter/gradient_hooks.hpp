// Tells when autograd has accumulated a gradient. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace linerate::torch_adapter {

/// Calls `ready(i)` on the thread of the backward pass each time a gradient has been added to
/// parameter i's .grad, until this object is destroyed.
///
/// The hooks sit in the tensors' own autograd data. Unlike hooks of AccumulateGrad nodes they stay
/// through torch::load, .to(dtype), set_data, freezing and thawing. A tensor has room for one hook.
/// A hook that is there already, of another DataParallel or other code, is kept and called first.
/// An exception of `ready` leaves through backward().
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(std::size_t)> ready);
  ~GradientHooks();

  /// Puts back hooks that other code has pushed out. Python's register_post_accumulate_grad_hook()
  /// writes its own hook into the slot; that one is kept and called first. Returns whether any was
  /// missing, because then gradients may have come unnoticed.
  bool renew();

 private:
  struct Listener;
  struct Hook;

  std::vector<at::Tensor> parameters_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // by parameter
};

}  // namespace linerate::torch_adapter
