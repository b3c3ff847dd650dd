// Tells listeners when a parameter's gradient is accumulated. LibTorch keeps one such hook for each
// tensor, but several listeners may want it. So one hook of this class calls all listeners in turn,
// after a hook of other code that was there before. renew() puts it back if other code has replaced
// it.
#include "linerate/torch_adapter/gradient_hooks.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <map>
#include <mutex>
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

namespace {

std::mutex mutex;  // of the table: ranks may be threads
std::map<const comm::Communicator*, const EarlySending*>& holders() {
  static auto* table =
      new std::map<const comm::Communicator*, const EarlySending*>;  // outlives statics
  return *table;
}

}  // namespace

EarlySending::EarlySending(comm::Communicator& communicator, std::function<void()> wait_idle)
    : communicator_(communicator), wait_idle_(std::move(wait_idle)) {}

EarlySending::~EarlySending() { give_back(); }

bool EarlySending::take() {
  const std::lock_guard lock(mutex);
  return holders().try_emplace(&communicator_, this).first->second == this;
}

void EarlySending::give_back() {
  const std::lock_guard lock(mutex);
  const auto at = holders().find(&communicator_);
  if (at != holders().end() && at->second == this) holders().erase(at);
}

void EarlySending::wait_for_others() const {
  const EarlySending* holder = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto at = holders().find(&communicator_);
    if (at != holders().end()) holder = at->second;
  }
  if (holder && holder != this) holder->wait_idle_();
}

// Notices what a program does to a model between steps. A moved tensor has other memory: its
// gradients may be views that have to be made anew. A reshaped one has another type, device or
// size, or begins to be trained, and the Plan no longer fits. Frozen parameters are no change,
// because their gradients only stay away.

namespace {

template <typename Named>
NamedTensors to_list(const Named& named) {
  NamedTensors list;
  for (const auto& item : named) list.emplace_back(item.key(), item.value());
  return list;
}

}  // namespace

ModelMembers ModelMembers::of(torch::nn::Module& model) {
  return {to_list(model.named_parameters()), to_list(model.named_buffers())};
}

bool ModelMembers::operator==(const ModelMembers& other) const {
  const auto same = [](const auto& x, const auto& y) {
    return x.second.is_same(y.second) && x.first == y.first;
  };
  return std::ranges::equal(parameters, other.parameters, same) &&
         std::ranges::equal(buffers, other.buffers, same);
}

bool ModelMembers::holds(const at::Tensor& parameter) const {
  return std::ranges::any_of(parameters,
                             [&](const auto& one) { return one.second.is_same(parameter); });
}

ChangingModel::ChangingModel(torch::nn::Module* model)
    : model_(model),
      shared_(model ? model->weak_from_this() : std::weak_ptr<torch::nn::Module>()),
      is_shared_(!shared_.expired()) {}

torch::nn::Module* ChangingModel::get() const {
  return is_shared_ && shared_.expired() ? nullptr : model_;
}

void ModelWatch::Seen::take() {
  data = tensor.const_data_ptr();
  type = tensor.scalar_type();
  device = tensor.device();
  sizes = tensor.sizes().vec();
  strides = tensor.strides().vec();
  requires_grad = tensor.requires_grad();
}

bool ModelWatch::Seen::reshaped() const {
  return type != tensor.scalar_type() || device != tensor.device() || sizes != tensor.sizes() ||
         strides != tensor.strides() || (tensor.requires_grad() && !requires_grad);
}

ModelWatch::ModelWatch(const NamedTensors& parameters, const NamedTensors& buffers) {
  for (const auto* list : {&parameters, &buffers})
    for (const auto& [name, tensor] : *list) seen_.emplace_back().tensor = tensor;
  accept();
}

bool ModelWatch::changed() const {
  return std::ranges::any_of(seen_, [](const Seen& s) { return s.moved() || s.reshaped(); });
}

bool ModelWatch::reshaped() const {
  return std::ranges::any_of(seen_, [](const Seen& s) { return s.reshaped(); });
}

void ModelWatch::accept() {
  for (Seen& s : seen_) s.take();
}

}  // namespace linerate::torch_adapter
