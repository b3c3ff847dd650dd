// Tells listeners when a parameter's gradient is accumulated. LibTorch keeps one such hook for each
// tensor, but several listeners may want it. So one hook of this class calls all listeners in turn,
// after a hook of other code that was there before. renew() puts it back if other code has replaced
// it.
#include "linerate/torch_adapter/gradient_hooks.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace linerate::torch_adapter {

struct GradientHooks::Listener {
  std::function<void(std::size_t)> ready;
  std::size_t index;
};

/// The one hook of a tensor: its listeners, in the order in which they came.
struct GradientHooks::Hook : torch::autograd::PostAccumulateGradHook {
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> before;  // not of this class
  std::vector<std::shared_ptr<Listener>> listeners;

  void operator()(const torch::autograd::Variable& tensor) override {
    if (before) (*before)(tensor);
    const auto now = listeners;  // one of them may leave meanwhile
    for (const auto& listener : now) listener->ready(listener->index);
  }

  /// The hook of a tensor; null if it has none of this class.
  static Hook* of(const at::Tensor& tensor) {
    torch::autograd::impl::materialize_autograd_meta(tensor);  // a frozen one has none yet
    return dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(tensor).get());
  }
  static Hook& of_or_new(const at::Tensor& tensor) {
    if (Hook* found = of(tensor)) return *found;
    auto made = std::make_unique<Hook>();
    made->before = std::move(torch::autograd::impl::post_acc_grad_hooks(tensor));
    Hook& hook = *made;
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::move(made));
    return hook;
  }
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(std::size_t)> ready)
    : parameters_(parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    listeners_.push_back(std::make_shared<Listener>(Listener{ready, i}));
    Hook::of_or_new(parameters[i]).listeners.push_back(listeners_.back());
  }
}

bool GradientHooks::renew() {
  bool any = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (Hook::of(parameters_[i])) continue;
    Hook::of_or_new(parameters_[i]).listeners.push_back(listeners_[i]);
    any = true;
  }
  return any;
}

GradientHooks::~GradientHooks() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Hook* hook = Hook::of(parameters_[i]);
    if (!hook) continue;  // other code has put another in its place
    std::erase(hook->listeners, listeners_[i]);
    if (hook->listeners.empty())
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::move(hook->before));
  }
}

}  // namespace linerate::torch_adapter
