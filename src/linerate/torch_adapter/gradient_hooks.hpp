// Tells when autograd has accumulated a gradient. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace linerate::torch_adapter {

/// Calls `ready(i)` on the thread of the backward pass each time parameter i's .grad has been
/// accumulated, until it is destroyed. An exception thrown by `ready` leaves through backward().
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(std::size_t)> ready);
  ~GradientHooks();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linerate::torch_adapter
