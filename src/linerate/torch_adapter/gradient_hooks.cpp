#include "linerate/torch_adapter/gradient_hooks.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace linerate::torch_adapter {
namespace {

// A shared_ptr up to LibTorch 2.11, an intrusive_ptr from 2.13.
using NodePtr = decltype(torch::autograd::impl::grad_accumulator(
    std::declval<const torch::autograd::Variable&>()));

struct ReadyHook : torch::autograd::FunctionPostHook {
  const std::function<void(std::size_t)>& ready;
  std::size_t index;
  ReadyHook(const std::function<void(std::size_t)>& call, std::size_t i) : ready(call), index(i) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ready(index);
    return outputs;
  }
};

}  // namespace

struct GradientHooks::State {
  struct Installed {
    NodePtr node;  // held: the parameter itself refers to its accumulator only weakly
    std::uintptr_t key;
  };
  std::function<void(std::size_t)> ready;
  std::vector<Installed> installed;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(std::size_t)> ready)
    : state_(std::make_unique<State>()) {
  state_->ready = std::move(ready);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    NodePtr node = torch::autograd::impl::grad_accumulator(parameters[i]);
    const std::uintptr_t key = node->add_post_hook(std::make_unique<ReadyHook>(state_->ready, i));
    state_->installed.push_back({std::move(node), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const State::Installed& one : state_->installed) one.node->del_post_hook(one.key);
}

}  // namespace linerate::torch_adapter
