// Notices what a program does to a model between steps. A moved tensor has other memory: its
// gradients may be views that have to be made anew. A reshaped one has another type, device or
// size, or begins to be trained, and the Plan no longer fits. Frozen parameters are no change,
// because their gradients only stay away.
#include "linerate/torch_adapter/model_watch.hpp"

#include <torch/nn/module.h>

#include <algorithm>

#include "linerate/torch_adapter/parameters.hpp"

namespace linerate::torch_adapter {
namespace {

bool are_same(const NamedTensors& a, const NamedTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.second.is_same(y.second) && x.first == y.first;
  });
}

}  // namespace

ModelMembers ModelMembers::of(torch::nn::Module& model) {
  return {named_parameters(model), named_buffers(model)};
}

bool ModelMembers::operator==(const ModelMembers& other) const {
  return are_same(parameters, other.parameters) && are_same(buffers, other.buffers);
}

bool ModelMembers::holds(const at::Tensor& parameter) const {
  return std::any_of(parameters.begin(), parameters.end(),
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
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const Seen& s) { return s.moved() || s.reshaped(); });
}

bool ModelWatch::reshaped() const {
  return std::any_of(seen_.begin(), seen_.end(), [](const Seen& s) { return s.reshaped(); });
}

void ModelWatch::accept() {
  for (Seen& s : seen_) s.take();
}

}  // namespace linerate::torch_adapter
